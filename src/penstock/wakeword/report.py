"""Tables and plots of wake-word results: metrics, costs, the detection error trade-off, a stretch of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from penstock.wakeword.metrics import CONFIDENCE, SLACK_S, DetectionMetrics, Utterance, match_alarms
from penstock.wakeword.thresholds import OperatingPoint

COLORS = (POSITIVE, NEGATIVE, "#2a8f5b", "#7b4fa3")
HIT, FALSE = "#2a8f5b", "#c22f2f"
NOTHING = "–"

SHORT = 24
"""Stream names up to this length are not wrapped in a table."""

FAR = 1e9
"""False alarms per hour beyond the end of any axis."""

MIN_TOP = 0.1
"""Lowest upper end of the axis of misses."""


def metrics_table(
    metrics_by_stream: Mapping[str, DetectionMetrics], *, title: str = "Detections", confidence: float = CONFIDENCE
) -> Table:
    """Return a row for each stream: misses, false alarms and latency, with exact intervals."""
    table = table_of("stream", ">missed", ">rate", ">false", ">per hour", ">hours", ">latency", title=title)
    table.padding = (0, 1, 0, 0)  # narrower than other tables, to leave room for names
    short = max(map(len, metrics_by_stream), default=0) <= SHORT
    for number, column in enumerate(table.columns):  # wrap long names, or else cells of two numbers
        column.no_wrap = number not in (2, 4, 6) if short else number > 0
    for name, metrics in metrics_by_stream.items():
        table.add_row(
            name,
            f"{metrics.misses:,} of {metrics.spoken:,}" if metrics.spoken else NOTHING,
            _miss_rate(metrics, confidence),
            f"{metrics.false_alarms:,}",
            _false_alarm_rate(metrics, confidence),
            rate(metrics.hours),
            f"{metrics.median_latency_s:.2f}, {metrics.p95_latency_s:.2f}" if metrics.hits else NOTHING,
        )
    table.caption = f"rate, per hour: misses and false alarms with exact {100 * confidence:g} % intervals\n"
    table.caption += "latency: seconds from the word's end to the alarm, median and 95th percentile"
    table.caption_justify = "left"
    return table


def cost_table(costs: Mapping[str, Mapping[str, StreamCost]]) -> Table:
    """Return the cost of a second of sound for each bundle in each situation."""
    title = "Cost of a second of sound"
    table = table_of("bundle", "sound", ">MMACs", ">ms", ">bytes sent", "windows at each stage", title=title)
    for name, found in costs.items():
        for situation, cost in found.items():
            reached = " ".join(percent(share) for share in cost.reached)
            table.add_row(
                name, situation, f"{cost.macs / 1e6:.2f}", f"{cost.ms:.2f}", f"{cost.crossed_bytes:,.0f}", reached
            )
    return table


def det_plot(
    curves: Mapping[str, Sequence[OperatingPoint]],
    path: Path,
    *,
    chosen: Mapping[str, OperatingPoint] | None = None,
    per_hour: float | None = None,
) -> Path:
    """Write the plot of `det_figure`, which has the same arguments, to a file."""
    return write_figure(det_figure(curves, chosen=chosen, per_hour=per_hour), path)


@dataclass(frozen=True, eq=False)
class StreamTrace:
    """Scores, words and alarms of a stream, to be plotted.

    Attributes:
        times_s: (n,), the end of each window, ascending.
        smoothed: (n,), the smoothed score that is compared with the threshold.
        threshold: detection threshold.
        truths: where the word is.
        alarms: times of the alarms.
        gates: for each gate by name, (n,): whether it passed the window.
    """

    times_s: npt.NDArray[np.floating]
    smoothed: npt.NDArray[np.floating]
    threshold: float
    truths: Sequence[Utterance] = ()
    alarms: Sequence[float] = ()
    gates: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = {"smoothed": np.shape(self.smoothed)}
        shapes |= {name: np.shape(passed) for name, passed in self.gates.items()}
        for name, shape in shapes.items():
            if shape != np.shape(self.times_s) or len(shape) != 1 or shape[0] < 2:
                raise DataError(
                    f"{name}: expected one value for each of at least 2 windows, got shape {shape} for times of shape "
                    f"{np.shape(self.times_s)}."
                )


def trace_plot(
    trace: StreamTrace, path: Path, *, span_s: tuple[float, float] | None = None, slack_s: float = SLACK_S
) -> Path:
    """Write the plot of `trace_figure`, which has the same arguments, to a file."""
    return write_figure(trace_figure(trace, span_s=span_s, slack_s=slack_s), path)


def det_figure(
    curves: Mapping[str, Sequence[OperatingPoint]],
    *,
    chosen: Mapping[str, OperatingPoint] | None = None,
    per_hour: float | None = None,
) -> Figure:
    """Plot miss rate against false alarms per hour: a dot per threshold, and a line through the best of them.

    A logarithmic axis has no zero: points without a false alarm are drawn at half of one, as hollow dots.

    Args:
        curves: the points of each curve, by the name to show.
        chosen: operating points of some of the curves, by the same names; they need not lie on the curve.
        per_hour: allowed false alarms per hour, drawn as a vertical line.
    """
    if not curves or not all(curves.values()):
        raise DataError("expected at least one curve, each with at least one point.")
    chosen = chosen or {}
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(curves.items()):
        color, label = COLORS[i % len(COLORS)], name
        if name in chosen:
            _mark(axes, chosen[name], color, size=max(12 - 3 * i, 6))  # where two coincide, both are visible
            label += f": {_summary(chosen[name].metrics)}"
        _dots(axes, points, color)
        axes.step(*_best(points), where="post", color=color, linewidth=max(2.8 - 0.8 * i, 1.2), label=label)
    if chosen:
        axes.plot([], [], "D", color=NEUTRAL, markeredgecolor="black", label="operating point")
    if per_hour is not None:
        axes.axvline(per_hour, color="black", linewidth=1, linestyle="--", label=f"{per_hour:g} per hour allowed")
    _limits(axes, curves, chosen, per_hour)
    axes.set_xlabel("false alarms per hour (hollow: none counted, drawn at half of one)")
    axes.set_ylabel("words missed")
    axes.grid(alpha=0.2)
    axes.legend(loc="best")
    return figure


def trace_figure(trace: StreamTrace, *, span_s: tuple[float, float] | None = None, slack_s: float = SLACK_S) -> Figure:
    """Plot a stretch of a stream: score and threshold, words, alarms, and below them what each gate passes.

    Args:
        span_s: first and last second to show; None for all. A minute reads well.
        slack_s: how long after its end a word may still be hit; decides which alarms are false.
    """
    times_s, smoothed, threshold, gates = trace.times_s, trace.smoothed, trace.threshold, trace.gates
    hop = float(np.median(np.diff(times_s)))
    span = (float(times_s[0]) - hop, float(times_s[-1])) if span_s is None else span_s
    if not ((times_s >= span[0]) & (times_s <= span[1])).any():
        raise DataError(
            f"no window ends between {span[0]:g} and {span[1]:g} s: expected a span within {times_s[0]:g} to "
            f"{times_s[-1]:g} s."
        )
    heights = [3.2, 0.3 * len(gates) + 0.1] if gates else [3.2]
    figure = Figure(figsize=(10, sum(heights) + 0.9), layout="constrained")
    panels = figure.subplots(len(heights), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    low, high = min(float(np.min(smoothed)), threshold), max(float(np.max(smoothed)), threshold)
    panels[0].set_ylim(low - 0.05 * (high - low), high + 0.15 * (high - low))  # room for the alarm marks at the top
    panels[0].plot(times_s, smoothed, color=NEGATIVE, linewidth=1.2, label="smoothed score")
    panels[0].axhline(threshold, color="black", linewidth=1, linestyle="--", label=f"threshold {threshold:.3g}")
    _plot_words_and_alarms(panels[0], trace.truths, trace.alarms, slack_s)
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
    """Format a rate or a number of hours.

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


def _summary(metrics: DetectionMetrics) -> str:
    return f"{100 * metrics.miss_rate:.1f} % missed, {rate(metrics.false_alarms_per_hour)} per hour"


def _place(metrics: DetectionMetrics) -> float:
    """Return the position of a false alarm rate on a logarithmic axis."""
    return max(metrics.false_alarms, 0.5) / metrics.hours


def _dots(axes: Axes, points: Sequence[OperatingPoint], color: str) -> None:
    for none in (True, False):
        seen = [point.metrics for point in points if (point.metrics.false_alarms == 0) == none]
        places = {(_place(metrics), metrics.miss_rate) for metrics in seen}
        face = "white" if none else color
        axes.plot(*_columns(places), "o", color=color, markerfacecolor=face, markersize=4, alpha=0.6, zorder=2)


def _best(points: Sequence[OperatingPoint]) -> tuple[list[float], list[float]]:
    """Return the corners of the line: the lowest miss rate at each number of false alarms or fewer."""
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
    """Limit the axes to the steps of the lines, and the miss rates to those near the chosen points."""
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
    top = min(1.0, max(highest, MIN_TOP))
    axes.set_ylim(-0.03 * top, 1.04 * top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))


def _plot_words_and_alarms(axes: Axes, truths: Sequence[Utterance], alarms: Sequence[float], slack_s: float) -> None:
    """Shade words and mark alarms at the top: green where they match, red where they do not."""
    pairs = match_alarms(alarms, truths, slack_s=slack_s)
    heard, right = {truth for _, truth in pairs}, {alarm for alarm, _ in pairs}
    kinds = ((True, HIT, "v", "word, hit", "alarm"), (False, FALSE, "X", "word, missed", "false alarm"))
    for good, color, mark, word, alarm in kinds:
        high = axes.get_xaxis_transform()  # x in seconds, y from 0 to 1 of the panel
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
    """Draw one row per gate, the first on top: dark where it passes windows."""
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
