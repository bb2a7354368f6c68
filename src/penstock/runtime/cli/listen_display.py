"""What `penstock listen` prints: detections, a meter, and a summary; as text or as JSON."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TypeAlias

from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.streaming.detector import Event, StreamStats, WindowResult
from penstock.runtime.streaming.listener import stream_config_of

METER_S = 0.05  # between two updates of the meter, unless a gate opens or closes
METER_WIDTH = 24
CLIPPED = 0.001  # warn if at least this share of the samples is at full scale


class JsonDisplay:
    """A line of JSON for each event that begins or ends, and one at the end."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def window(self, result: WindowResult) -> None:
        self.events(result.events)

    def events(self, events: Sequence[Event]) -> None:
        for event in events:
            fields = {
                name: round(value, 4) if isinstance(value, float) else value for name, value in vars(event).items()
            }
            ended = fields.pop("ended")
            print(json.dumps({"kind": "ended" if ended else "detected", **fields}), flush=True)

    def interrupted(self) -> None:
        """Print nothing: the last line follows."""

    def end(self, stats: StreamStats) -> None:
        seconds = round(time.perf_counter() - self._started, 3)
        print(json.dumps({"kind": "end", "seconds": seconds, "windows": stats.windows, **asdict(stats)}))


class TextDisplay:
    """A line for each detection on standard output, and a meter on standard error.

    Args:
        live: show the meter.
    """

    def __init__(self, manifest: Manifest, *, live: bool):
        self._manifest, self._threshold = manifest, stream_config_of(manifest).detector.threshold
        self._live, self._started = live, time.perf_counter()
        self._updated, self._gates = 0.0, ""
        self._events = 0
        if live:
            gates = ", ".join(f"gate {i}" for i, stage in enumerate(manifest.stages, 1) if stage.gate is not None)
            legend = f"listening; ▮ open and ▯ closed: {gates or 'no gates'}; then the score, and | the threshold"
            print(legend, file=sys.stderr)

    def window(self, result: WindowResult) -> None:
        self.events(result.events)
        gates = _gates(result)
        if self._live and (result.events or gates != self._gates or time.perf_counter() - self._updated > METER_S):
            print(f"\r{_meter(result, self._threshold)}\x1b[K", end="", file=sys.stderr, flush=True)
            self._updated, self._gates = time.perf_counter(), gates

    def events(self, events: Sequence[Event]) -> None:
        for event in events:
            if not event.ended:
                self._clear()
                self._events += 1
                detection = f"{_clock(event.detected_s)}  {event.label:<16} score {event.score:5.1f}"
                print(f"{detection}  {event.latency_s:.2f} s after it rose", flush=True)

    def interrupted(self) -> None:
        self._clear()
        print("interrupted: no longer listening", file=sys.stderr)

    def end(self, stats: StreamStats) -> None:
        self._clear()
        seconds = time.perf_counter() - self._started
        print("\n".join(_summary(self._manifest, stats, seconds, self._events)))

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


Display: TypeAlias = JsonDisplay | TextDisplay


def _clock(seconds: float) -> str:
    """Format a time.

    >>> _clock(3725.25)
    '1:02:05.2'
    """
    tenths = math.floor(seconds * 10)
    return f"{tenths // 36000}:{tenths // 600 % 60:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"


def _meter(result: WindowResult, threshold: float) -> str:
    """Return one line: the time, each gate, and the score as a bar with the threshold in it."""
    score = max(result.smoothed)
    filled, mark = (round((value + 10) / 20 * METER_WIDTH) for value in (score, threshold))
    mark = min(METER_WIDTH - 1, max(0, mark))
    bar = "".join("|" if i == mark else "█" if i < filled else " " for i in range(METER_WIDTH))
    return f"{_clock(result.time_s)}  {_gates(result)}  [{bar}] {score:5.1f}"


def _gates(result: WindowResult) -> str:
    """Return a symbol for each gate: open, closed, or not reached."""
    symbols = ""
    for gate in range(1, len(result.gate_scores) + 1):
        symbols += "·" if gate > result.exit_stage else "▯" if result.stopped and gate == result.exit_stage else "▮"
    return symbols


def _count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _count(1, "event"), _count(1200, "gap")
    ('1 event', '1,200 gaps')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _summary(manifest: Manifest, stats: StreamStats, seconds: float, events: int) -> list[str]:
    config, quality = stream_config_of(manifest), stats.input_quality
    sound_s = quality.valid / config.frontend.rate_hz
    lines = [f"{_count(events, 'event')} in {_clock(sound_s)} of sound, processed in {seconds:.1f} s"]
    if stats.windows:
        all_macs = stats.windows * sum(stage.macs for stage in manifest.stages)
        shares = ", ".join(f"{n / stats.windows:.1%} reached stage {i}" for i, n in enumerate(stats.reached, 1))
        lines.append(f"  of {stats.windows:,} windows {shares}")
        lines.append(f"  {stats.macs(manifest) / all_macs:.1%} of all multiply-accumulates were done")
    elif sound_s < config.window_s:
        lines.append("  shorter than one window: nothing was classified")
    else:
        lines.append("  no window was answered")
    if quality.gaps:
        lost = f"{_count(quality.lost, 'sample')} lost, {quality.invalid:,} invalid"
        lines.append(f"  {_count(quality.gaps, 'gap')}: {lost}; windows across a gap were skipped")
    clipped = quality.clipped / max(1, quality.valid)
    if clipped >= CLIPPED:
        lines.append(f"  {clipped:.1%} of the samples are at full scale: clipped?")
    return lines
