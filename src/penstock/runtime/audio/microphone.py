"""Record from a microphone, through sounddevice (PortAudio).

PortAudio calls back from a thread of its own that must not wait: blocks go into a queue of a few seconds, and those
that do not fit are dropped and counted.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from typing import Any

from penstock.errors import DataError, require
from penstock.runtime.audio.resampling import BLOCK, Block, Floats, check_request, resampled

QUEUE_S = 10.0  # how much sound may wait to be processed
_CHECK_S = 1.0  # after this time without sound, check whether the microphone still runs


def microphone(rate_hz: int, device: int | str | None = None, block: int = BLOCK) -> Generator[Block, None, None]:
    """Record from a microphone until the iterator is closed.

    A device that does not support the sample rate is opened at its own, and resampled.

    Args:
        rate_hz: sample rate of the blocks.
        device: its number or part of its name; None for the system's default.
        block: largest number of samples in a block.

    Raises:
        DataError: with the first block, if the microphone cannot be opened; later, if it has stopped.
        MissingExtraError: if sounddevice or PortAudio is not installed.
    """
    check_request(rate_hz, block)
    sounddevice = require("sounddevice", extra="microphone")
    with ExitStack() as stack:
        try:
            device_hz = _supported_rate(sounddevice, device, rate_hz)
            frames = max(1, round(block * device_hz / rate_hz))
            recorded = _Queue(device_hz, frames)
            stream = sounddevice.InputStream(
                samplerate=device_hz,
                blocksize=frames,
                device=device,
                channels=1,
                dtype="float32",
                callback=recorded.put,
            )
            stack.enter_context(closing(stream))
            stream.start()
        except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: no device has this name, or several
            raise DataError(
                f"cannot open the {'default microphone' if device is None else f'microphone {device!r}'}: {error}. Is "
                "it plugged in, not in use, and permitted? List the devices with 'python -m sounddevice', and give the "
                "number or name of one with inputs."
            ) from error
        yield from resampled(recorded.blocks(stream), device_hz, rate_hz, block)


def _supported_rate(sounddevice: Any, device: int | str | None, rate_hz: int) -> int:
    try:
        sounddevice.check_input_settings(device=device, channels=1, dtype="float32", samplerate=rate_hz)
        return rate_hz
    except sounddevice.PortAudioError:
        return round(sounddevice.query_devices(device, "input")["default_samplerate"])


class _Queue:
    """Passes blocks from PortAudio's thread to ours."""

    def __init__(self, rate_hz: int, frames: int) -> None:
        self._rate_hz = rate_hz
        self._queue: queue.Queue[Block] = queue.Queue(max(2, math.ceil(QUEUE_S * rate_hz / frames)))
        self._lost = 0  # samples before the next block
        self._next_s: float | None = None  # when the next block should start, by PortAudio's clock

    def put(self, samples: Floats, frames: int, time: Any, status: Any) -> None:
        """Queue a block; PortAudio reuses its array after this call."""
        if status.input_overflow:  # PortAudio does not report how much it dropped; its clock does, where it has one
            late_s = 0.0 if self._next_s is None else time.inputBufferAdcTime - self._next_s
            self._lost += max(1, round(late_s * self._rate_hz))
        self._next_s = time.inputBufferAdcTime + frames / self._rate_hz
        try:
            self._queue.put_nowait(Block(samples[:, 0].copy(), self._lost))
            self._lost = 0
        except queue.Full:
            self._lost += frames

    def blocks(self, stream: Any) -> Iterator[Block]:
        """Yield blocks while the stream runs."""
        while True:
            try:
                yield self._queue.get(timeout=_CHECK_S)
            except queue.Empty:
                if not stream.active:
                    raise DataError(
                        "the microphone has stopped: was it unplugged, or the computer asleep? Start again; list the "
                        "devices with 'python -m sounddevice'."
                    ) from None
