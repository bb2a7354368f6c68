"""Tables and plots of wake-word results: metrics, costs, the detection error trade-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.table import Table

from penstock.errors import DataError
from penstock.evaluation.plots import NEGATIVE, NEUTRAL, POSITIVE
from penstock.gating.tables import percent, table_of
from penstock.wakeword.benchmark import StreamCost
from penstock.wakeword.metrics import CONFIDENCE, DetectionMetrics
from penstock.wakeword.thresholds import OperatingPoint

COLORS = (POSITIVE, NEGATIVE, "#2a8f5b", "#7b4fa3")
NOTHING = "–"

SHORT = 24  # stream names up to this length are not wrapped in a table
FAR = 1e9  # false alarms per hour beyond the end of any axis
MIN_TOP = 0.1  # lowest upper end of the axis of misses


def metrics_table(metrics_by_stream: Mapping[str, DetectionMetrics], *, title: str = "Detections") -> Table:
    """Return a row for each stream: misses, false alarms and latency, with exact intervals."""
    table = table_of("stream", ">missed", ">rate", ">false", ">per hour", ">hours", ">latency", title=title)
    table.padding = (0, 1, 0, 0)  # narrower than other tables, to leave room for names
    short = max(map(len, metrics_by_stream), default=0) <= SHORT
    for number, column in enumerate(table.columns):  # wrap long names, or else cells of two numbers
        column.no_wrap = number not in (2, 4, 6) if short else number > 0
    for name, metrics in metrics_by_stream.items():
        missed, alarms = metrics.miss_interval(), metrics.false_alarm_interval()
        shares = f"{100 * metrics.miss_rate:.1f} % ({100 * missed[0]:.1f}–{100 * missed[1]:.1f})"
        table.add_row(
            name,
            f"{metrics.misses:,} of {metrics.spoken:,}" if metrics.spoken else NOTHING,
            shares if metrics.spoken else NOTHING,
            f"{metrics.false_alarms:,}",
            f"{rate(metrics.false_alarms_per_hour)} ({rate(alarms[0])}–{rate(alarms[1])})",
            rate(metrics.hours),
            f"{metrics.latency_s(0.5):.2f}, {metrics.latency_s(0.95):.2f}" if metrics.hits else NOTHING,
        )
    table.caption = f"rate, per hour: misses and false alarms with exact {100 * CONFIDENCE:g} % intervals\n"
    table.caption += "latency: seconds from the word's end to the alarm, median and 95th percentile"
    table.caption_justify = "left"
    return table


def cost_table(costs: Mapping[str, Mapping[str, StreamCost]]) -> Table:
    """Return the cost of a second of sound for each bundle in each situation."""
    columns = ("bundle", "sound", ">MMACs", ">ms", ">bytes sent", "windows at each stage")
    table = table_of(*columns, title="Cost of a second of sound")
    for name, found in costs.items():
        for situation, cost in found.items():
            figures = f"{cost.macs / 1e6:.2f}", f"{cost.ms:.2f}", f"{cost.crossed_bytes:,.0f}"
            table.add_row(name, situation, *figures, " ".join(map(percent, cost.reached)))
    return table


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
            metrics = chosen[name].metrics
            label += f": {100 * metrics.miss_rate:.1f} % missed, {rate(metrics.false_alarms_per_hour)} per hour"
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


def rate(value: float) -> str:
    """Format a rate or a number of hours.

    >>> rate(0), rate(0.4219), rate(16.72), rate(1234.5)
    ('0', '0.42', '16.7', '1,234')
    """
    if value == 0:
        return "0"
    return f"{value:,.2f}" if value < 9.995 else f"{value:,.1f}" if value < 99.95 else f"{value:,.0f}"


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
