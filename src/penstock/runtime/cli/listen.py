"""The command of a device that listens: a recording, a pipe or a microphone, events as they are heard."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.errors import DataError, PenstockError, require
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.cli.parsing import parser_of
from penstock.runtime.streaming.detector import Event, StreamStats, WindowResult
from penstock.runtime.streaming.frontend import Sensor
from penstock.runtime.streaming.listener import (
    Chunk,
    Listener,
    stream_config_of,
)

BLOCK_S = 0.1
"""Sound that is taken at a time: an event is at most so much later for it."""

METER_S = 0.05
"""Between two pictures of the meter, unless a gate opens or closes."""

PATIENCE_S = 60.0
"""A recording waits so long for islands that do not answer; what is live waits for ever."""

CLIPPED = 0.001
"""The share of samples at full scale from which on it is worth a word."""


def listen(arguments: Sequence[str]) -> None:
    """Listen to a recording, to raw sound on standard input, or to a microphone, and tell what was heard, live."""
    given = _parsed(arguments)
    bundle = Bundle.read(given.bundle)
    stream_config = stream_config_of(bundle.manifest)
    if isinstance(stream_config.frontend, Sensor):
        raise DataError(
            f"this bundle listens to a sensor of {stream_config.frontend.axes} axes, and penstock listen hears sound: "
            "push its samples to penstock.runtime.streaming.listener.Listener."
        )
    asked = bundle.manifest  # what islands know it by; what is decided, and at which threshold, is no matter of theirs
    if given.threshold is not None:
        detector = stream_config.detector.at(given.threshold)
        bundle = replace(bundle, manifest=replace(asked, stream_config=replace(stream_config, detector=detector)))
    blocks = _blocks(given, stream_config.frontend.rate_hz)
    show = _Lines() if given.json else _Screen(bundle.manifest, live=sys.stderr.isatty() and not given.quiet)
    began = time.perf_counter()
    if given.islands is None:
        listener = Listener(bundle, threads=given.threads)
        counts = _heard(listener.listen(blocks), show, lambda: listener.stats, listener.end, began)
    else:
        counts = asyncio.run(_over_islands(bundle.manifest, asked, given, blocks, show))
    show.end(counts, time.perf_counter() - began)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(listen, "penstock listen bundle/ evening.wav")
    parser.add_argument(
        "bundle", type=Path, help="a bundle that says how it listens; penstock wakeword train makes one"
    )
    parser.add_argument(
        "recording",
        nargs="?",
        help="a wav, flac or ogg file of any rate; - for raw sound on standard input: 16 bits, little-endian",
    )
    parser.add_argument("--microphone", action="store_true", help="listen to the microphone, until Ctrl-C")
    parser.add_argument("--device", help="which microphone; python -m sounddevice lists them")
    parser.add_argument("--rate", type=int, help="of the raw sound on standard input, in Hz (default: 16000)")
    parser.add_argument("--channels", type=int, help="of the raw sound (default: 1)")
    parser.add_argument("--threshold", type=float, help="log-odds that a word must reach (default: the bundle's own)")
    parser.add_argument("--islands", metavar="HOST:PORT", help="run the stages on islands; the first one is here")
    parser.add_argument("--threads", type=int, default=1, help="that a stage may use (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="no meter")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each event, and a last one")
    given = parser.parse_args(arguments)
    if (given.recording is None) != given.microphone:
        parser.error("give a recording, - for standard input, or --microphone: one of them")
    if given.recording != "-" and (given.rate is not None or given.channels is not None):
        parser.error(
            "--rate and --channels are those of raw sound on standard input: files and microphones know theirs"
        )
    if given.device is not None and not given.microphone:
        parser.error("--device names a microphone: give --microphone too")
    if given.threads < 1:
        parser.error(f"--threads {given.threads} is not possible: a stage uses 1 or more")
    if given.threshold is not None and not math.isfinite(given.threshold):
        raise DataError(f"--threshold {given.threshold} is not possible: it is a number, such as 2.5.")
    return given


def _blocks(given: argparse.Namespace, rate_hz: int) -> Iterator[Chunk]:
    from penstock.runtime.audio.file import recording
    from penstock.runtime.audio.microphone import microphone
    from penstock.runtime.audio.stdin import pipe

    block = round(BLOCK_S * rate_hz)
    if given.microphone:
        device = int(given.device) if given.device and given.device.isdigit() else given.device
        return microphone(rate_hz, device, block=block)
    if given.recording == "-":
        unbuffered = io.FileIO(sys.stdin.fileno(), closefd=False)  # a thread may be in it at the end of the program
        rate, channels = 16_000 if given.rate is None else given.rate, 1 if given.channels is None else given.channels
        return pipe(unbuffered, rate_hz, rate, channels=channels, block=block)  # type: ignore[arg-type]
    return recording(Path(given.recording), rate_hz, block=block)


def _heard(
    heard: Iterator[WindowResult],
    show: _Lines | _Screen,
    counts: Callable[[], StreamStats],
    end: Callable[[], Sequence[Event]],
    began: float,
) -> StreamStats:
    """Show all that is heard, until the end or Ctrl-C; what was heard before an error is shown before it."""
    try:
        for one in heard:
            show.window(one)
    except KeyboardInterrupt:
        show.interrupted()
        show.events(end())
    except PenstockError:  # such as a file that is cut short: said when all that is there was heard
        if counts().windows:
            show.end(counts(), time.perf_counter() - began)
        raise
    return counts()


async def _over_islands(
    manifest: Manifest, asked: Manifest, given: argparse.Namespace, blocks: Iterator[Chunk], show: _Lines | _Screen
) -> StreamStats:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    require("penstock.runtime.islands.client", extra="links")
    require("penstock.runtime.islands.links.table", extra="links")
    from penstock.runtime.islands.client import Client
    from penstock.runtime.islands.links.table import connector_for
    from penstock.runtime.streaming.remote import listen_remote

    connector = connector_for(given.islands)
    last: list[tuple[StreamStats, list[Event]]] = []
    began = time.perf_counter()
    patience_s = None if given.microphone or given.recording == "-" else PATIENCE_S
    async with Client(asked, connector) as source:
        heard = listen_remote(
            manifest, source, _threaded(blocks), timeout_s=patience_s, on_end=lambda *what: last.append(what)
        )
        try:
            async for one in heard:
                show.window(one)
        except asyncio.CancelledError:  # Ctrl-C
            show.interrupted()
            show.events(last[-1][1])
        except PenstockError:
            if last and last[-1][0].windows:
                show.end(last[-1][0], time.perf_counter() - began)
            raise
    return last[-1][0]


async def _threaded(blocks: Iterator[Chunk]) -> AsyncIterator[Chunk]:
    """Give blocks that a thread waits for: a pipe that stalls holds up nobody, not even the end of the program."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[Chunk | PenstockError | None] = asyncio.Queue(8)

    def put(what: Chunk | PenstockError | None) -> None:
        asyncio.run_coroutine_threadsafe(ready.put(what), loop).result()

    def read() -> None:
        try:
            try:
                for block in blocks:
                    put(block)
                put(None)
            except PenstockError as error:
                put(error)
        except (RuntimeError, CancelledError):  # the loop has ended: nobody listens any more
            return

    threading.Thread(target=read, daemon=True).start()
    while (block := await ready.get()) is not None:
        if isinstance(block, PenstockError):
            raise block
        yield block


class _Lines:
    """A line of JSON for each event that begins or ends, and one at the end."""

    def window(self, heard: WindowResult) -> None:
        self.events(heard.events)

    def events(self, events: Sequence[Event]) -> None:
        for event in events:
            print(json.dumps({"kind": "ended" if event.ended else "detected", **_rounded(event)}), flush=True)

    def interrupted(self) -> None:
        """Say nothing: the last line comes anyway."""

    clear = interrupted

    def end(self, counts: StreamStats, seconds: float) -> None:
        print(json.dumps({"kind": "end", "seconds": round(seconds, 3), "windows": counts.windows, **asdict(counts)}))


class _Screen:
    """A line for each event on standard output, and a meter on standard error."""

    def __init__(self, manifest: Manifest, *, live: bool):
        stream_config = stream_config_of(manifest)
        self.rate_hz = stream_config.frontend.rate_hz
        self.manifest, self.detector, self.live = manifest, stream_config.detector, live
        self._shown, self._doors = 0.0, ""
        self._events = 0
        if live:
            print(_legend(manifest), file=sys.stderr)

    def window(self, heard: WindowResult) -> None:
        self.events(heard.events)
        doors = _doors(heard)
        if self.live and (heard.events or doors != self._doors or time.perf_counter() - self._shown > METER_S):
            print(f"\r{_meter(heard, self.detector.threshold)}\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown, self._doors = time.perf_counter(), doors

    def events(self, events: Sequence[Event]) -> None:
        for event in events:
            if not event.ended:
                self.clear()
                self._events += 1
                print(_line(event), flush=True)

    def interrupted(self) -> None:
        self.clear()
        print("interrupted: no longer listening", file=sys.stderr)

    def clear(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self, counts: StreamStats, seconds: float) -> None:
        self.clear()
        print("\n".join(_summary(self.manifest, self.rate_hz, counts, seconds, self._events)))


def _rounded(event: Event) -> dict[str, Any]:
    plain = asdict(event)
    del plain["ended"]
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in plain.items()}


def _clock(seconds: float) -> str:
    """Return a time as people read it.

    >>> _clock(3725.25)
    '1:02:05.2'
    """
    tenths = math.floor(seconds * 10)
    return f"{tenths // 36000}:{tenths // 600 % 60:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"


def _line(event: Event) -> str:
    return (
        f"{_clock(event.detected_s)}  {event.label:<16} score {event.score:5.1f}  {event.latency_s:.2f} s after it rose"
    )


def _legend(manifest: Manifest) -> str:
    gates = ", ".join(f"gate {i + 1}" for i, stage in enumerate(manifest.stages) if stage.gate is not None)
    return f"listening; ▮ open and ▯ closed: {gates or 'no gates'}; then the score, and | the threshold"


def _meter(heard: WindowResult, threshold: float, width: int = 24) -> str:
    """Return one line: the time, each gate open or closed, and the score as a bar with the threshold in it."""
    score = max(heard.smoothed)
    filled = round((score + 10) / 20 * width)
    mark = min(width - 1, max(0, round((threshold + 10) / 20 * width)))
    bar = "".join("|" if i == mark else "█" if i < filled else " " for i in range(width))
    return f"{_clock(heard.time_s)}  {_doors(heard)}  [{bar}] {score:5.1f}"


def _doors(heard: WindowResult) -> str:
    """Return each gate as it stands: open, closed, or not reached."""
    doors = ""
    for gate in range(1, len(heard.gate_scores) + 1):
        doors += "·" if gate > heard.exit_stage else "▯" if heard.stopped and gate == heard.exit_stage else "▮"
    return doors


def _count(number: int, what: str) -> str:
    """Return so many of it.

    >>> _count(1, "event"), _count(1200, "gap")
    ('1 event', '1,200 gaps')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def _summary(manifest: Manifest, rate_hz: int, counts: StreamStats, seconds: float, events: int) -> list[str]:
    input_quality, reached = counts.input_quality, counts.reached
    heard_s = input_quality.valid / rate_hz
    lines = [f"{_count(events, 'event')} in {_clock(heard_s)} of sound, heard in {seconds:.1f} s"]
    if counts.windows:
        whole = counts.windows * sum(stage.macs for stage in manifest.stages)
        shares = ", ".join(f"{some / counts.windows:.1%} reached stage {i}" for i, some in enumerate(reached, 1))
        lines.append(f"  of {counts.windows:,} windows {shares}")
        lines.append(f"  {counts.macs(manifest) / whole:.1%} of all multiply-accumulates were done")
    elif input_quality.valid < rate_hz * stream_config_of(manifest).window_s:
        lines.append("  that is shorter than one window: nothing was judged")
    else:
        lines.append("  nothing was judged: no window was answered")
    if input_quality.gaps:
        lines.append(
            f"  {_count(input_quality.gaps, 'gap')}: {_count(input_quality.lost, 'sample')} lost, "
            f"{input_quality.invalid:,} invalid; windows across a gap were not judged"
        )
    clipped = input_quality.clipped / max(1, input_quality.valid)
    if clipped >= CLIPPED:
        lines.append(f"  {clipped:.1%} of the samples are at full scale: clipped?")
    return lines
