"""Sound from a microphone, through sounddevice (PortAudio).

PortAudio calls from a thread of its own, and must not wait. So what comes is put into a queue of a few seconds; when
nobody takes it in time, new sound is dropped and counted.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from penstock.errors import DataError, require
from penstock.runtime.audio.resampling import BLOCK, Block, Floats, check_wanted, resampled

QUEUE_S = 10.0
"""So much sound may wait to be heard."""

_PATIENCE_S = 1.0  # after so long without sound it is asked whether the microphone still runs


def microphone(rate_hz: int, device: int | str | None = None, block: int = BLOCK) -> Generator[Block, None, None]:
    """Listen to a microphone until the iterator is closed.

    The device is asked for the rate that is wanted; one that refuses it is opened at its own, and resampled.

    Args:
        rate_hz: of the samples that are wanted.
        device: its number or part of its name; None for the system's choice.
        block: how many samples a block has at most.

    Raises:
        DataError: with the first block, when the microphone cannot be opened; later, when it has stopped by itself.
        MissingExtraError: when sounddevice or PortAudio is not installed.
    """
    check_wanted(rate_hz, block)
    sounddevice = require("sounddevice", extra="microphone")
    try:
        given_hz = _possible_rate(sounddevice, device, rate_hz)
        line = _Line(given_hz, max(1, round(block * given_hz / rate_hz)))
        stream = line.opened(sounddevice, device)
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no device has such a name, or several
        raise DataError(
            f"the microphone {'of the system' if device is None else repr(device)} cannot be opened ({error}): "
            "'python -m sounddevice' lists the devices, give the number or the name of one with inputs. Is it plugged "
            "in, free, and allowed to be used?"
        ) from error
    with closing(stream):
        yield from resampled(line.blocks(stream), given_hz, rate_hz, block)


def _possible_rate(sounddevice: Any, device: int | str | None, rate_hz: int) -> int:
    try:
        sounddevice.check_input_settings(device=device, channels=1, dtype="float32", samplerate=rate_hz)
        return rate_hz
    except sounddevice.PortAudioError:
        return round(sounddevice.query_devices(device, "input")["default_samplerate"])


class _Line:
    """What lies between PortAudio's thread and ours."""

    def __init__(self, rate_hz: int, frames: int) -> None:
        self._rate_hz, self._frames = rate_hz, frames
        self._queue: queue.Queue[Block] = queue.Queue(max(2, math.ceil(QUEUE_S * rate_hz / frames)))
        self._lost = 0  # samples, before what comes next
        self._due_s: float | None = None  # when the next sample is to be recorded, by PortAudio's clock

    def opened(self, sounddevice: Any, device: int | str | None) -> Any:
        """Return a stream that runs."""
        stream = sounddevice.InputStream(
            samplerate=self._rate_hz,
            blocksize=self._frames,
            device=device,
            channels=1,
            dtype="float32",
            callback=self._put,
        )
        try:
            stream.start()
        except BaseException:
            stream.close()
            raise
        return stream

    def blocks(self, stream: Any) -> Iterator[Block]:
        """Give what comes, as long as the stream runs."""
        while True:
            try:
                block = self._queue.get(timeout=_PATIENCE_S)
            except queue.Empty:
                if stream.active:
                    continue
                raise DataError(
                    "the microphone has stopped: was it unplugged, or the computer asleep? Start again; "
                    "'python -m sounddevice' lists the devices."
                ) from None
            yield block

    def _put(self, samples: Floats, frames: int, time: Any, status: Any) -> None:
        """Take what PortAudio gives; its array is used again after this."""
        if status.input_overflow:  # PortAudio does not say how much it dropped, its clock does where it has one
            late_s = 0.0 if self._due_s is None else time.inputBufferAdcTime - self._due_s
            self._lost += max(1, round(late_s * self._rate_hz))
        self._due_s = time.inputBufferAdcTime + frames / self._rate_hz
        try:
            self._queue.put_nowait(Block(samples[:, 0].copy(), self._lost))
            self._lost = 0
        except queue.Full:
            self._lost += frames
