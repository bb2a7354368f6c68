"""What was heard of streams: a table of judgements, the trade-off of misses and false alarms, a minute of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.table import Table

from penstock.errors import DataError
from penstock.evaluation.plots import NEGATIVE, NEUTRAL, POSITIVE, write_figure
from penstock.gating.tables import percent, table_of
from penstock.wakeword.benchmark import StreamCost
from penstock.wakeword.metrics import CONFIDENCE, SLACK_S, DetectionMetrics, Utterance, pair
from penstock.wakeword.thresholds import OperatingPoint

COLORS = (POSITIVE, NEGATIVE, "#2a8f5b", "#7b4fa3")
HIT, FALSE = "#2a8f5b", "#c22f2f"
NOTHING = "–"

SHORT = 24
"""Names of streams up to here stay whole in a table."""

FAR = 1e9
"""False alarms an hour, behind the end of any axis."""

LEAST_SHOWN = 0.1
"""The axis of misses ends no lower than this share."""


def listening_table(
    judgements: Mapping[str, DetectionMetrics], *, title: str = "Heard in streams", confidence: float = CONFIDENCE
) -> Table:
    """Return a row for each judgement, by its name: misses, false alarms and latency, with exact intervals."""
    table = table_of("stream", ">missed", ">rate", ">false", ">an hour", ">hours", ">late (s)", title=title)
    table.padding = (0, 1, 0, 0)  # narrower than other tables: the name of a stream takes room
    short = max(map(len, judgements), default=0) <= SHORT
    for number, column in enumerate(table.columns):  # where it is narrow, long names wrap, or else what has two numbers
        column.no_wrap = number not in (2, 4, 6) if short else number > 0
    for name, metrics in judgements.items():
        table.add_row(
            name,
            f"{metrics.misses:,} of {metrics.spoken:,}" if metrics.spoken else NOTHING,
            _miss_rate(metrics, confidence),
            f"{metrics.false_alarms:,}",
            _false_alarm_rate(metrics, confidence),
            rate(metrics.hours),
            f"{metrics.median_latency_s:.2f}, {metrics.p95_latency_s:.2f}" if metrics.hits else NOTHING,
        )
    table.caption = f"rate, an hour: of misses, of false alarms, and their exact {100 * confidence:g} % intervals\n"
    table.caption += "late: from the word's end to the alarm; median and 95th percentile of the hits"
    table.caption_justify = "left"
    return table


def det_plot(
    curves: Mapping[str, Sequence[OperatingPoint]],
    path: Path,
    *,
    chosen: Mapping[str, OperatingPoint] | None = None,
    per_hour: float | None = None,
) -> Path:
    """Draw misses against false alarms an hour, and write the picture; the arguments are those of `det_figure`."""
    return write_figure(det_figure(curves, chosen=chosen, per_hour=per_hour), path)


def trace_plot(
    times_s: npt.NDArray[np.floating],
    smoothed: npt.NDArray[np.floating],
    threshold: float,
    truths: Sequence[Utterance],
    alarms: Sequence[float],
    path: Path,
    gates: Mapping[str, npt.NDArray[np.bool_]] | None = None,
    *,
    span_s: tuple[float, float] | None = None,
    slack_s: float = SLACK_S,
) -> Path:
    """Draw a stretch of a stream, and write the picture; the arguments are those of `trace_figure`."""
    figure = trace_figure(
        times_s, smoothed, threshold, truths=truths, alarms=alarms, gates=gates, span_s=span_s, slack_s=slack_s
    )
    return write_figure(figure, path)


def det_figure(
    curves: Mapping[str, Sequence[OperatingPoint]],
    *,
    chosen: Mapping[str, OperatingPoint] | None = None,
    per_hour: float | None = None,
) -> Figure:
    """Draw misses against false alarms an hour: a dot a threshold, and as a line the best that can be had.

    A logarithmic axis has no zero: where no false alarm was counted, half of one is drawn, in a hollow dot.

    Args:
        curves: points of one set of streams, by the name to show; the word is spoken in them.
        chosen: the operating point of some of the curves, by the same names; it need not be on the curve.
        per_hour: how many false alarms are allowed; a line upright.
    """
    if not curves or not all(curves.values()):
        raise DataError("a curve without points came: give at least one curve, and each at least one point.")
    chosen = chosen or {}
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(curves.items()):
        color, label = COLORS[i % len(COLORS)], name
        if name in chosen:
            _mark(axes, chosen[name], color, size=max(12 - 3 * i, 6))  # where two coincide, both are seen
            label += f": {_said(chosen[name].metrics)}"
        _dots(axes, points, color)
        axes.step(*_best(points), where="post", color=color, linewidth=max(2.8 - 0.8 * i, 1.2), label=label)
    if chosen:
        axes.plot([], [], "D", color=NEUTRAL, markeredgecolor="black", label="operating point")
    if per_hour is not None:
        axes.axvline(per_hour, color="black", linewidth=1, linestyle="--", label=f"{per_hour:g} an hour allowed")
    _limits(axes, curves, chosen, per_hour)
    axes.set_xlabel("false alarms an hour (hollow: none counted, drawn at half of one)")
    axes.set_ylabel("words missed")
    axes.grid(alpha=0.2)
    axes.legend(loc="best")
    return figure


def trace_figure(
    times_s: npt.NDArray[np.floating],
    smoothed: npt.NDArray[np.floating],
    threshold: float,
    *,
    truths: Sequence[Utterance],
    alarms: Sequence[float],
    gates: Mapping[str, npt.NDArray[np.bool_]] | None = None,
    span_s: tuple[float, float] | None = None,
    slack_s: float = SLACK_S,
) -> Figure:
    """Draw a stretch of a stream: its score and threshold, the words, the alarms, and below them what gates let pass.

    Args:
        times_s: (n,), the end of each window, rising.
        smoothed: (n,), the score that the threshold is held against.
        truths: where the word is.
        alarms: their times.
        gates: by the name to show, (n,): whether this gate let the window pass.
        span_s: from where to where to draw; all of it if None. A minute reads well.
        slack_s: how long after its end a word may still be hit; it decides which alarms are false.
    """
    _check_trace(times_s, smoothed, gates or {})
    hop = float(np.median(np.diff(times_s)))
    span = (float(times_s[0]) - hop, float(times_s[-1])) if span_s is None else span_s
    if not ((times_s >= span[0]) & (times_s <= span[1])).any():
        raise DataError(
            f"nothing from {span[0]:g} to {span[1]:g} s is there to draw: windows end between {times_s[0]:g} and "
            f"{times_s[-1]:g} s. Choose a span among them."
        )
    heights = [3.2, 0.3 * len(gates) + 0.1] if gates else [3.2]
    figure = Figure(figsize=(10, sum(heights) + 0.9), layout="constrained")
    panels = figure.subplots(len(heights), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    low, high = min(float(np.min(smoothed)), threshold), max(float(np.max(smoothed)), threshold)
    panels[0].set_ylim(low - 0.05 * (high - low), high + 0.15 * (high - low))  # above: room for the marks of alarms
    panels[0].plot(times_s, smoothed, color=NEGATIVE, linewidth=1.2, label="smoothed score")
    panels[0].axhline(threshold, color="black", linewidth=1, linestyle="--", label=f"threshold {threshold:.3g}")
    _words_and_alarms(panels[0], truths, alarms, slack_s)
    panels[0].set_ylabel("log-odds of the word")
    if gates:
        _gate_bars(panels[1], times_s, gates, hop, span)
    for axes in panels:
        axes.set_xlim(*span)
        axes.grid(alpha=0.2)
    panels[-1].set_xlabel("time in the stream (s)")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    return figure


def rate(value: float) -> str:
    """Return a number of alarms or hours as a person reads it.

    >>> rate(0), rate(0.4219), rate(16.72), rate(1234.5)
    ('0', '0.42', '16.7', '1,234')
    """
    if value == 0:
        return "0"
    return f"{value:,.2f}" if value < 9.995 else f"{value:,.1f}" if value < 99.95 else f"{value:,.0f}"


def _miss_rate(metrics: DetectionMetrics, confidence: float) -> str:
    if not metrics.spoken:
        return NOTHING
    low, high = metrics.miss_interval(confidence)
    return f"{100 * metrics.miss_rate:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def _false_alarm_rate(metrics: DetectionMetrics, confidence: float) -> str:
    low, high = metrics.false_alarm_interval(confidence)
    return f"{rate(metrics.false_alarms_per_hour)} ({rate(low)}–{rate(high)})"


def _said(metrics: DetectionMetrics) -> str:
    return f"{100 * metrics.miss_rate:.1f} % missed, {rate(metrics.false_alarms_per_hour)} an hour"


def _place(metrics: DetectionMetrics) -> float:
    """Return where false alarms an hour stand on a logarithmic axis."""
    return max(metrics.false_alarms, 0.5) / metrics.hours


def _dots(axes: Axes, points: Sequence[OperatingPoint], color: str) -> None:
    for none in (True, False):
        seen = [point.metrics for point in points if (point.metrics.false_alarms == 0) == none]
        places = {(_place(metrics), metrics.miss_rate) for metrics in seen}
        face = "white" if none else color
        axes.plot(*_columns(places), "o", color=color, markerfacecolor=face, markersize=4, alpha=0.6, zorder=2)


def _best(points: Sequence[OperatingPoint]) -> tuple[list[float], list[float]]:
    """Return the corners of the line: the fewest misses at no more than so many false alarms."""
    corners: list[tuple[float, float]] = []
    for place, missed in sorted((_place(point.metrics), point.metrics.miss_rate) for point in points):
        if not corners or missed < corners[-1][1]:
            corners.append((place, missed))
    return _columns([*corners, (FAR, corners[-1][1])])


def _columns(pairs: Sequence[tuple[float, float]] | set[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _mark(axes: Axes, point: OperatingPoint, color: str, size: float) -> None:
    look: dict[str, Any] = {"markerfacecolor": color, "markeredgecolor": "black"}
    if point.metrics.false_alarms == 0:
        look = {"markerfacecolor": "white", "markeredgecolor": color, "markeredgewidth": 2}
    axes.plot(_place(point.metrics), point.metrics.miss_rate, "D", markersize=size, clip_on=False, zorder=4, **look)


def _limits(
    axes: Axes,
    curves: Mapping[str, Sequence[OperatingPoint]],
    chosen: Mapping[str, OperatingPoint],
    per_hour: float | None,
) -> None:
    """Show from the first to the last step of the lines; of the misses, what is near the chosen points."""
    corners = [_best(points) for points in curves.values()]
    marked = [point.metrics for point in chosen.values()]
    places = [x for xs, _ in corners for x in xs[:-1]] + [_place(one) for one in marked]
    places += [] if per_hour is None else [per_hour]
    axes.set_xscale("log")
    axes.set_xlim(min(places) / 1.5, max(max(places) * 3, min(places) * 10))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    highest = max(ys[0] for _, ys in corners)
    if marked:
        highest = min(highest, 4 * max(one.miss_rate for one in marked))
    top = min(1.0, max(highest, LEAST_SHOWN))
    axes.set_ylim(-0.03 * top, 1.04 * top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))


def _words_and_alarms(axes: Axes, truths: Sequence[Utterance], alarms: Sequence[float], slack_s: float) -> None:
    """Shade words, and mark alarms at the top; green where they found each other, red where not."""
    pairs = pair(alarms, truths, slack_s=slack_s)
    heard, right = {truth for _, truth in pairs}, {alarm for alarm, _ in pairs}
    kinds = ((True, HIT, "v", "word, hit", "alarm"), (False, FALSE, "X", "word, missed", "false alarm"))
    for good, color, mark, word, alarm in kinds:
        high = axes.get_xaxis_transform()  # across: seconds; up: from 0 to 1, the height of the panel
        spans = [(one.begin_s, one.end_s - one.begin_s) for i, one in enumerate(truths) if (i in heard) == good]
        if spans:
            axes.broken_barh(spans, (0, 1), color=color, alpha=0.25, linewidth=0, label=word, transform=high)
        times = [time for i, time in enumerate(alarms) if (i in right) == good]
        if times:
            look: dict[str, Any] = {"color": color, "markeredgecolor": "black", "markersize": 9, "zorder": 4}
            axes.plot(times, [0.94] * len(times), mark, label=alarm, transform=high, **look)


def _gate_bars(
    axes: Axes,
    times_s: npt.NDArray[np.floating],
    gates: Mapping[str, npt.NDArray[np.bool_]],
    hop: float,
    span: tuple[float, float],
) -> None:
    """Draw a row a gate, the first on top: dark while it lets windows pass."""
    shown = (times_s >= span[0]) & (times_s <= span[1])
    names = []
    for row, (name, passed) in enumerate(gates.items()):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], passed, [False]]).astype(int)))
        runs = edges.reshape(-1, 2)
        bars = [(times_s[first] - hop, times_s[last - 1] - times_s[first] + hop) for first, last in runs]
        axes.broken_barh(bars, (row - 0.35, 0.7), color=NEUTRAL, linewidth=0)
        names.append(f"{name}: {100 * np.mean(passed[shown]):.3g} % pass")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _check_trace(
    times_s: npt.NDArray[np.floating],
    smoothed: npt.NDArray[np.floating],
    gates: Mapping[str, npt.NDArray[np.bool_]],
) -> None:
    shapes = {"smoothed": np.shape(smoothed), **{name: np.shape(passed) for name, passed in gates.items()}}
    for name, shape in shapes.items():
        if shape != np.shape(times_s) or len(shape) != 1 or shape[0] < 2:
            raise DataError(
                f"{name} of shape {shape} came for times of shape {np.shape(times_s)}: give one value a window, and "
                "at least two windows."
            )


def upkeep_table(costs: Mapping[str, Mapping[str, StreamCost]]) -> Table:
    """Return what a second of sound costs each bundle, in each situation."""
    title = "What a second of sound costs"
    table = table_of("bundle", "sound", ">million MACs", ">ms", ">bytes crossed", "windows at each stage", title=title)
    for name, found in costs.items():
        for situation, cost in found.items():
            reached = " ".join(percent(share) for share in cost.reached)
            table.add_row(
                name, situation, f"{cost.macs / 1e6:.2f}", f"{cost.ms:.2f}", f"{cost.crossed_bytes:,.0f}", reached
            )
    return table
