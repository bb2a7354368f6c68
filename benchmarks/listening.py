"""Wake-word figures: two networks trained alike, with and without gates, benchmarked on test speakers.

    make listening speech=FOLDER     train both (unless they are trained), benchmark them, write the results
    make listening-page              write docs/listening.md from the results

Everything is chosen on training and validation speakers; only `measure` reads test speakers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.files import write_atomically
from penstock.runtime.streaming.detector import smooth
from penstock.runtime.streaming.listener import stream_config_of
from penstock.wakeword.benchmark import BenchmarkResult, StreamRun, run_benchmark
from penstock.wakeword.clips import load_clip_sets
from penstock.wakeword.thresholds import OperatingPoint

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "listening.json"
HEARD = ROOT / "results" / "listening-heard.json"
RUNS = ROOT / "runs" / "listening"
WORD = "marvin"
HOURS = 4.0
SEED = 2028
VARIANTS: dict[str, tuple[str, ...]] = {"gated": (), "plain": ("--gates", "none")}
"""Options that differ between the two."""


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(prog="make listening", description=__doc__)
    parser.add_argument("speech", type=Path, help="the folder of Speech Commands")
    speech = parser.parse_args().speech
    trained = {name: _train(name, speech) for name in VARIANTS}
    measure(speech, trained)


def _train(name: str, speech: Path) -> dict[str, Any]:
    """Return the output of the training command, running it unless its output is there."""
    output = RUNS / f"{name}.json"
    if not output.exists():
        command = [sys.executable, "-c", "from penstock.cli import main; main()", "wakeword", "train"]
        command += ["--word", WORD, "--data", str(speech), "-o", str(RUNS / name), *VARIANTS[name]]
        command += ["--folder", str(RUNS / f"{name}-run"), "--json"]
        RUNS.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        write_atomically(output, done.stdout)
    return json.loads(output.read_text())  # type: ignore[no-any-return]


def measure(speech: Path, trained: dict[str, dict[str, Any]]) -> None:
    """Benchmark both on test speakers, and write the results."""
    bundles = {name: Bundle.read(RUNS / name) for name in VARIANTS}
    found = run_benchmark(bundles, load_clip_sets(speech, WORD)["test"], WORD, hours=HOURS, seed=SEED, log=print)
    results = {
        "word": WORD,
        "hours": HOURS,
        "taught": trained,
        "heard": {name: one.to_json() for name, one in found.items()},
        "minute": _minute(found["gated"].tiny),
    }
    write_atomically(HEARD, (json.dumps(results, indent=1) + "\n").encode())
    rows = figures(found["gated"], found["plain"], trained["gated"]["seconds"])
    plain = [
        {
            "figure": row.figure,
            "value": row.value,
            "reach": f"{row.relation} {row.reach:g}",
            "holds": row.holds,
            "measured": date.today().isoformat(),
            **({"details": row.details} if row.details else {}),
        }
        for row in rows
    ]
    write_atomically(RESULTS, (json.dumps(plain, indent=1) + "\n").encode())
    for row in rows:
        print(f"{row.figure}: {row.value:.4g} ({row.relation} {row.reach:g}) {'holds' if row.holds else 'MISSED'}")


def figures(gated: BenchmarkResult, plain: BenchmarkResult, training_s: float) -> list[Figure]:
    """Return the figures, each with its target."""
    tiny, long = gated.tiny.metrics, gated.long.metrics
    macs = [one.long.counts.macs(one.long.manifest) for one in (gated, plain)]
    hour_s = gated.long.seconds / gated.long.stream.seconds * 3600
    missed = [_miss_rate_at(one.points, 0.5) for one in (gated, plain)]
    cut = {"misses": tiny.misses, "spoken": tiny.spoken, "false_alarms": tiny.false_alarms}
    return [
        Figure(f"MLPerf Tiny's stream, 1,200 s: words missed of {tiny.spoken}", tiny.misses, "<=", 3, cut),
        Figure("MLPerf Tiny's stream, 1,200 s: false alarms", tiny.false_alarms, "<=", 1),
        Figure(f"{HOURS:g} h of test voices: false alarms an hour", long.false_alarms_per_hour, "<=", 0.5),
        Figure(f"{HOURS:g} h of test voices: share of {long.spoken} words missed", long.miss_rate, "<=", 0.05),
        Figure("windows of that stream that a gate stops before the last stage", gated.long.stopped_early, ">=", 0.95),
        Figure(
            "compute a second of sound, gated / plain: multiply-accumulates",
            macs[0] / macs[1],
            "<=",
            0.45,
            {"macs_per_s": [count / gated.long.stream.seconds for count in macs]},
        ),
        Figure(
            "compute a second of sound, gated / plain: time, with the front end",
            gated.long.seconds / plain.long.seconds,
            "<=",
            0.45,
        ),
        Figure("one hour of sound on one core, in seconds", hour_s, "<=", 36),
        Figure(
            "missed at 0.5 false alarms an hour, gated - plain",
            missed[0] - missed[1],
            "<=",
            0,
            {"gated": missed[0], "plain": missed[1]},
        ),
        Figure("minutes that the config took", training_s / 60, "<=", 20),
    ]


def _miss_rate_at(points: Sequence[OperatingPoint], per_hour: float) -> float:
    """Return the lowest miss rate among the points with at most ``per_hour`` false alarms per hour."""
    return min(point.metrics.miss_rate for point in points if point.metrics.false_alarms_per_hour <= per_hour)


def _minute(run: StreamRun, length_s: float = 60.0) -> dict[str, Any]:
    """Return the minute with the most words, window by window, for the plot."""
    detector = stream_config_of(run.manifest).detector
    starts = np.arange(0, run.stream.seconds - length_s, 5)
    words = np.array([truth.begin_s for truth in run.stream.truths])
    start = max(starts, key=lambda first: int(((words > first + 1) & (words < first + length_s - 2)).sum()))
    inside = (run.times_s >= start) & (run.times_s < start + length_s)
    return {
        "start_s": float(start),
        "threshold": detector.threshold,
        "times_s": run.times_s[inside].round(3).tolist(),
        "smoothed": smooth(run.scores, detector.smoothing)[inside].round(3).tolist(),
        "exit_stage": run.exit_stage[inside].tolist(),
        "stopped": (run.exit_stage[inside] < len(run.manifest.stages)).tolist(),
        "truths": [
            [round(truth.begin_s, 3), round(truth.end_s, 3)]
            for truth in run.stream.truths
            if start <= truth.begin_s < start + length_s
        ],
        "alarms": [round(event.detected_s, 3) for event in run.events if start <= event.detected_s < start + length_s],
    }


if __name__ == "__main__":
    main()
