"""The paper's figures that compare data sets: methods, ROC curves, positions and numbers of layers.

Each function takes results by method and seed and returns a figure; missing results are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from penstock.evaluation.plots import NEGATIVE, NEUTRAL, POSITIVE
from reproduction.results.claims import COMPARED_LOSS, incremental, stopping_at
from reproduction.results.finished_runs import BySeed
from reproduction.results.paper_table1 import ACCURACY, BASELINE, BRANCHYNET, TRADE_OFF, PaperRow
from reproduction.results.summary import MeanStd, at_operating_point

Quantity: TypeAlias = Callable[[dict[str, Any]], float]

STYLES = {
    BASELINE: ("#333333", "s"),
    BRANCHYNET: (NEGATIVE, "^"),
    TRADE_OFF: (POSITIVE, "o"),
    ACCURACY: ("#2a8f5b", "D"),
}
"""Colour and marker of each method."""

PALE = "#bbbbbb"
LINES = ((NEGATIVE, "o"), (POSITIVE, "s"), ("#2a8f5b", "^"), ("#7b4fa3", "D"))
"""Colour and marker of each data set in figures that show several."""

PANEL = (4.1, 2.8)
"""Width and height of a panel in inches."""

ROC_START = 0.01
"""Smallest share of negatives shown in ROC curves."""


def overall_figure(
    groups: Mapping[str, Mapping[str, BySeed]], published: Mapping[str, Sequence[PaperRow]] | None = None
) -> Figure:
    """Plot accuracy against early stopping, one panel per data set.

    Args:
        groups: results by title of the data set, then by name of the method.
        published: the paper's rows by title, plotted in grey.
    """
    figure, panels = _panels(groups)
    for axes, (title, methods) in zip(panels, groups.items(), strict=True):
        for row in (published or {}).get(title, ()):
            if row.method in STYLES:
                axes.plot(row.early_stopping, row.accuracy, STYLES[row.method][1], color=PALE, markersize=6)
        for name, results in methods.items():
            if results:
                _cross(axes, results, *STYLES[name])
        axes.set(title=title, xlabel="early stopping", ylabel="accuracy", xlim=(-0.06, 1.06))
        in_percent(axes.xaxis)
        axes.grid(alpha=0.2)
    shown = [name for name in STYLES if any(methods.get(name) for methods in groups.values())]
    handles = [panels[0].plot([], [], STYLES[name][1], color=STYLES[name][0], label=name)[0] for name in shown]
    if published:
        handles += panels[0].plot([], [], "o", color=PALE, label="paper (same markers)")
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def roc_figure(groups: Mapping[str, Mapping[str, BySeed]]) -> Figure:
    """Plot ROC curves of the gates: a thin line per seed, a thick one for the mean."""
    figure, panels = _panels(groups)
    for axes, (title, methods) in zip(panels, groups.items(), strict=True):
        for name, results in methods.items():
            curves = [result["test"]["gates"][0] for result in results.values()]
            if not curves:
                continue
            x = np.array(curves[0]["roc"]["negatives_passed"])
            ys = np.array([curve["roc"]["positives_passed"] for curve in curves])
            axes.plot(x, ys.T, color=STYLES[name][0], linewidth=0.6, alpha=0.5)
            auc = MeanStd.of([curve["auc"] for curve in curves]).mean
            axes.plot(x, ys.mean(0), color=STYLES[name][0], linewidth=1.8, label=f"AUC {auc:.4f}")
        _corner(axes)
        axes.set(title=title, xlabel="negatives passed", ylabel="positives passed")
    drawn = [name for name in (BRANCHYNET, TRADE_OFF) if any(methods.get(name) for methods in groups.values())]
    handles = [panels[0].plot([], [], color=STYLES[name][0], label=name)[0] for name in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def position_figure(lines: Mapping[str, Mapping[int, BySeed]]) -> Figure:
    """Plot early stopping and sparsity against the position of a single layer, one line per data set."""
    figure = Figure(figsize=(11.4, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for (title, places), style in zip(lines.items(), LINES, strict=False):
        line(left, _at_depth(places), lambda result: stopping_at(result, COMPARED_LOSS), style, title)
        line(middle, _at_depth(places), stopped, style, title)
        line(right, _at_depth(places), lambda result: float(result["activation_sparsity"]), style, title)
    left.set(title="early stopping, at 1 % of positives lost", ylabel="negatives stopped", ylim=(-0.03, 1.03))
    middle.set(title="early stopping, as in table 1", ylabel="negatives stopped", ylim=(-0.03, 1.03))
    right.set(title="activation sparsity", ylabel="values dropped", ylim=(-0.03, 1.03))
    for axes in (left, middle, right):
        _depth(axes)
        in_percent(axes.yaxis)
    legend_below(figure)
    return figure


def count_figure(lines: Mapping[str, Mapping[int, BySeed]]) -> Figure:
    """Plot accuracy against the number of layers, one line per data set."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for (title, numbers), style in zip(lines.items(), LINES, strict=False):
        line(axes, numbers, accuracy, style, title)
    axes.set(xlabel="layers", ylabel="accuracy", xticks=range(1, 9))
    axes.grid(alpha=0.2)
    legend_below(figure)
    return figure


def modes_figure(panels: Mapping[str, tuple[BySeed, Mapping[int, BySeed]]]) -> Figure:
    """Plot early stopping against position for independent gates, incremental gates and single-gate networks.

    Args:
        panels: by title of the data set: results with eight layers, and with a single layer by block.
    """
    figure, axes_of = _panels(panels)
    for axes, (title, (several, singles)) in zip(axes_of, panels.items(), strict=True):
        gates = range(max((len(result["test"]["gates"]) for result in several.values()), default=0))
        modes: tuple[tuple[str, Callable[[dict[str, Any], int], float], tuple[str, str]], ...] = (
            ("incremental", incremental, (POSITIVE, "o")),
            ("independent", lambda result, k: stopping_at(result, COMPARED_LOSS, gate=k), (NEGATIVE, "^")),
        )
        for name, quantity, style in modes:
            points = {10 * (k + 1): MeanStd.of([quantity(result, k) for result in several.values()]) for k in gates}
            _errorbars(axes, points, style, name)
        line(
            axes, _at_depth(singles), lambda result: stopping_at(result, COMPARED_LOSS), (NEUTRAL, "s"), "one gate only"
        )
        axes.set(title=title, ylabel="negatives stopped", ylim=(None, 1.01))
        in_percent(axes.yaxis)
        _depth(axes)
    legend_below(figure)
    return figure


def stopped(result: dict[str, Any]) -> float:
    """Return the early stopping at the operating point of table 1."""
    return float(at_operating_point(result)["early_stopping"])


def accuracy(result: dict[str, Any]) -> float:
    """Return the accuracy on test data at the operating point of table 1."""
    return float(at_operating_point(result)["accuracy"])


def line(
    axes: Axes, points: Mapping[Any, BySeed], quantity: Quantity, style: tuple[str, str], label: str | None
) -> None:
    """Plot means over seeds with standard deviations; points without results are left out."""
    summaries = {x: MeanStd.of([quantity(r) for r in results.values()]) for x, results in points.items() if results}
    _errorbars(axes, summaries, style, label)


def legend_below(figure: Figure) -> None:
    """Add one legend for all panels below them, without duplicates."""
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False)


def in_percent(axis: Axis) -> None:
    """Format the ticks of an axis as percent."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")


def _corner(axes: Axes) -> None:
    """Zoom to the upper left corner: x from `ROC_START`, y from the lowest curve there."""
    lowest = min(
        np.interp(ROC_START, np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())) for curve in axes.lines
    )
    axes.set(xscale="log", xlim=(ROC_START, 1), ylim=(np.floor(10 * lowest) / 10, 1.0))
    axes.set_xticks([0.01, 0.02, 0.05, 0.1, 0.2, 1])
    axes.xaxis.set_minor_formatter(NullFormatter())
    in_percent(axes.xaxis)
    in_percent(axes.yaxis)
    axes.grid(alpha=0.2)
    axes.legend(loc="lower right")


def _cross(axes: Axes, results: BySeed, color: str, marker: str) -> None:
    """Plot a point with error bars in both directions."""
    x = MeanStd.of([at_operating_point(result)["early_stopping"] for result in results.values()])
    y = MeanStd.of([accuracy(result) for result in results.values()])
    axes.errorbar(x.mean, y.mean, xerr=x.std, yerr=y.std, fmt=marker, color=color, markersize=7, linewidth=1, zorder=3)


def _errorbars(axes: Axes, points: Mapping[Any, MeanStd], style: tuple[str, str], label: str | None) -> None:
    if not points:
        return
    color, marker = style
    means, stds = [point.mean for point in points.values()], [point.std for point in points.values()]
    axes.errorbar(
        list(points), means, yerr=stds, color=color, marker=marker, markersize=5, capsize=2, linewidth=1.4, label=label
    )


def _at_depth(places: Mapping[int, BySeed]) -> dict[int, BySeed]:
    """Return results by depth in percent; each block is 10 % of the network."""
    return {10 * block: results for block, results in places.items()}


def _depth(axes: Axes) -> None:
    axes.set(xlabel="depth of the gate (%)", xticks=range(10, 90, 10))
    axes.grid(alpha=0.2)


def _panels(titles: Mapping[str, Any]) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel per title, two per row."""
    columns, rows = min(2, len(titles)), ceil(len(titles) / 2)
    size = PANEL[0] * columns, PANEL[1] * rows + 0.5
    figure = Figure(figsize=(max(5.5, size[0]), size[1]), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(titles) :]:
        axes.remove()
    return figure, panels[: len(titles)]
