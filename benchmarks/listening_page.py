"""Write docs/listening.md and its plots from results/listening.json and results/listening-heard.json.

Every figure on the page is computed from the results: `make listening-page`.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.listening import HEARD, RESULTS, ROOT
from benchmarks.stream_trace import StreamTrace, trace_plot
from penstock.evaluation.plots import write_figure
from penstock.gating.tables import percent
from penstock.wakeword.metrics import DetectionMetrics, Utterance, hours_needed
from penstock.wakeword.report import det_figure, rate
from penstock.wakeword.thresholds import OperatingPoint

PAGE = ROOT / "docs" / "listening.md"
PICTURES = ROOT / "docs" / "listening"


def main() -> None:
    """Write the page and its pictures."""
    rows, results = json.loads(RESULTS.read_text()), json.loads(HEARD.read_text())
    PICTURES.mkdir(parents=True, exist_ok=True)
    _draw(results, PICTURES)
    PAGE.write_text(page(rows, results))


def page(rows: list[dict[str, Any]], results: dict[str, Any]) -> str:
    """Return the page."""
    word, hours = results["word"], results["hours"]
    held = sum(row["holds"] for row in rows)
    parts = [
        "# Listening",
        "<!-- made by `make listening-page` from results/listening*.json: do not edit by hand -->",
        _text(
            f"A wake word, `{word}`, trained by `penstock wakeword train` on a subset of Speech Commands, and "
            "benchmarked on streams synthesized from clips of speakers who were used neither in training nor in any "
            "choice, and from other stretches of the same noise recordings. The plain network is trained the same way "
            f"without gates. Of {len(rows)} figures {held} hold."
        ),
        _table(
            ("figure", ">value", ">reach", ""),
            [(row["figure"], _value(row), _reach(row["reach"]), _holds(row)) for row in rows],
        ),
        _text(
            "Thresholds are chosen on validation streams, with one exception: gated and plain are compared at 0.5 "
            "false alarms per hour with the best threshold of each on the test stream, which compares two curves "
            "rather than two operating points."
        ),
        "![Miss rate against false alarms per hour](listening/det.png)",
        _detections(results),
        _text(
            "Intervals are exact 95 % intervals: Clopper-Pearson for misses, Garwood for false alarms. Latency is the "
            "time from the end of the word to the alarm; it is negative where the word was detected before it ended. "
            "To claim at most 0.5 false alarms per hour with 95 % confidence takes "
            f"{hours_needed(0.5):.1f} h without any, or {hours_needed(0.5, false_alarms=2):.1f} h with two. The "
            f"{hours:g} h here are synthesized from fewer clips, so clips of other words occur more than once, in "
            "different noise."
        ),
        "## One minute",
        "![One minute of the stream](listening/minute.png)",
        "The score of the word, and below it what each gate passes.",
        "## Cost of a second of sound",
        _costs(results),
        _text(
            "Milliseconds are those of one thread of the benchmark machine, front end included. There are ten windows "
            "per second."
        ),
        "## Method",
        _method(results),
    ]
    return "\n\n".join(parts) + "\n"


def _text(text: str) -> str:
    return textwrap.fill(text, width=120)


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [" | ".join(heading.removeprefix(">") for heading in headings)]
    lines.append("|".join("---:" if heading.startswith(">") else "---" for heading in headings))
    return "\n".join(f"| {line} |" for line in [*lines, *(" | ".join(row) for row in rows)])


def _holds(row: dict[str, Any]) -> str:
    return "holds" if row["holds"] else "**missed**"


def _value(row: dict[str, Any]) -> str:
    value = row["value"]
    return f"{value:g}" if float(value).is_integer() else f"{value:.3f}"


def _reach(text: str) -> str:
    return text.replace("<=", "≤").replace(">=", "≥")


def _detections(results: dict[str, Any]) -> str:
    streams = {"tiny": "1,200 s, like MLPerf Tiny", "long": f"{results['hours']:g} h"}
    rows = []
    for name, one in results["heard"].items():
        for key, title in streams.items():
            metrics = one[key]
            missed = " to ".join(percent(share) for share in metrics["miss_interval"])
            alarms = " to ".join(rate(per_hour) for per_hour in metrics["false_alarm_interval"])
            latency = (
                f"{metrics['median_latency_s']:.2f} s, {metrics['p95_latency_s']:.2f} s" if metrics["hits"] else ""
            )
            result = f"{metrics['misses']} of {metrics['spoken']}"
            rows.append((name, title, result, missed, rate(metrics["false_alarms_per_hour"]), alarms, latency))
    headings = ("", "stream", ">missed", "", ">false alarms per hour", "", ">latency, median and 95th percentile")
    return _table(headings, rows)


def _costs(results: dict[str, Any]) -> str:
    rows = []
    for situation in results["heard"]["gated"]["upkeep"]:
        for name, one in results["heard"].items():
            cost = one["upkeep"][situation]
            reached = " · ".join(percent(share) for share in cost["reached"])
            numbers = (f"{cost['macs'] / 1e6:.2f}", f"{cost['ms']:.2f}", f"{cost['crossed_bytes']:,.0f}")
            rows.append((situation, name, *numbers, reached))
    headings = ("sound", "network", ">million MACs", ">ms", ">bytes between stages", "windows at each stage")
    return _table(headings, rows)


def _method(results: dict[str, Any]) -> str:
    points = [
        f"{name}: trained in {result['seconds'] / 60:.1f} min; threshold {result['threshold']:g}, chosen on "
        f"{result['hours']:g} h of validation streams, where it missed {result['misses']} of {result['spoken']} words "
        f"with {result['false_alarms']} false alarm{'s' * (result['false_alarms'] != 1)}."
        for name, result in results["taught"].items()
    ]
    points += [
        "The threshold lies midway between the limits of 0.5 false alarms per hour and 5 % missed words, each by its "
        "exact bound at 95 %.",
        "Gates are calibrated on validation speakers; hard negatives are mined from streams of training speakers.",
        "Streams consist of scenes of silence, noise, and speech at 5 to 30 dB above the noise, all drawn from a seed "
        "(`penstock.wakeword.streams`). The words of a scene are brought to the same loudness.",
        "Two earlier streams of the same test speakers, from other seeds, were evaluated before the training and the "
        "rule that chooses thresholds had their present form: the speakers are new to the networks, but not to us "
        "(docs/decisions/0016-listening.md).",
        "To reproduce it: `make listening speech=FOLDER`, then `make listening-page`.",
    ]
    return "\n".join(textwrap.fill(f"- {point}", width=120, subsequent_indent="  ") for point in points)


def _draw(results: dict[str, Any], folder: Path) -> None:
    curves, chosen = {}, {}
    for name, one in results["heard"].items():
        spoken, hours = one["long"]["spoken"], one["long"]["hours"]
        curves[name] = [
            OperatingPoint(
                threshold, DetectionMetrics(spoken - missed, missed, alarms, hours, (0.0,) * (spoken - missed))
            )
            for threshold, missed, alarms in one["points"]
        ]
        metrics = one["long"]
        at = DetectionMetrics(
            metrics["hits"], metrics["misses"], metrics["false_alarms"], hours, (0.0,) * metrics["hits"]
        )
        chosen[name] = OperatingPoint(one["threshold"], at)
    write_figure(det_figure(curves, chosen=chosen, per_hour=0.5), folder / "det.png")
    minute = results["minute"]
    names = ("speech?", f"{results['word']}?")
    exit_stage = _exit_stages(minute, stages=len(names) + 1)
    trace = StreamTrace(
        np.array(minute["times_s"]),
        np.array(minute["smoothed"]),
        minute["threshold"],
        [Utterance(*truth) for truth in minute["truths"]],
        minute["alarms"],
        {name: exit_stage > gate for gate, name in enumerate(names, start=1)},
    )
    trace_plot(trace, folder / "minute.png")


def _exit_stages(minute: dict[str, Any], stages: int) -> npt.NDArray[np.int64]:
    """Return the exit stages of a minute; older results hold the gate that stopped it, from 0; -1 for none."""
    if "exit_stage" in minute:
        return np.array(minute["exit_stage"])
    stopped_at = np.array(minute["stopped_at"])
    return np.where(stopped_at == -1, stages, np.maximum(stopped_at + 1, 0))


if __name__ == "__main__":
    main()
