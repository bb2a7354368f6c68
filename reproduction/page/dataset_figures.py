"""The paper's figures on whole data sets, from result files: methods, curves, positions and numbers of layers.

Each function takes plain results, by method and seed, and returns a figure. What is not computed yet is left out of it.
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
"""Colour and marker of the methods that are compared."""

PALE = "#bbbbbb"
LINES = ((NEGATIVE, "o"), (POSITIVE, "s"), ("#2a8f5b", "^"), ("#7b4fa3", "D"))
"""Colour and marker of the data sets, where one figure holds several."""

PANEL = (4.1, 2.8)
"""The width and height of a panel in inches; two stand side by side."""

FROM = 0.01
"""The share of negatives that pass, where the curves of gates begin."""


def overall_figure(
    groups: Mapping[str, Mapping[str, BySeed]], published: Mapping[str, Sequence[PaperRow]] | None = None
) -> Figure:
    """Draw accuracy against early stopping, a panel a data set.

    Args:
        groups: by the data set's title, then by the method's name.
        published: the paper's rows, by the same titles; in grey.
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
        handles += panels[0].plot([], [], "o", color=PALE, label="the paper's, same shapes")
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def roc_figure(groups: Mapping[str, Mapping[str, BySeed]]) -> Figure:
    """Draw the share of positives that pass against that of negatives: a thin line a seed, and their mean."""
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
        axes.set(title=title, xlabel="negatives that pass", ylabel="positives that pass")
    drawn = [name for name in (BRANCHYNET, TRADE_OFF) if any(methods.get(name) for methods in groups.values())]
    handles = [panels[0].plot([], [], color=STYLES[name][0], label=name)[0] for name in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def position_figure(lines: Mapping[str, Mapping[int, BySeed]]) -> Figure:
    """Draw early stopping and sparsity against the block behind which one layer stands, a line a data set."""
    figure = Figure(figsize=(11.4, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for (title, places), style in zip(lines.items(), LINES, strict=False):
        line(left, _at_depth(places), lambda result: stopping_at(result, COMPARED_LOSS), style, title)
        line(middle, _at_depth(places), stopped, style, title)
        line(right, _at_depth(places), lambda result: float(result["activation_sparsity"]), style, title)
    left.set(title="early stopping, at 1 % of positives lost", ylabel="negatives stopped", ylim=(-0.03, 1.03))
    middle.set(title="early stopping, where table 1 has it", ylabel="negatives stopped", ylim=(-0.03, 1.03))
    right.set(title="activation sparsity", ylabel="values dropped", ylim=(-0.03, 1.03))
    for axes in (left, middle, right):
        _depth(axes)
        in_percent(axes.yaxis)
    legend_below(figure)
    return figure


def count_figure(lines: Mapping[str, Mapping[int, BySeed]]) -> Figure:
    """Draw accuracy against the number of layers, a line a data set."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for (title, numbers), style in zip(lines.items(), LINES, strict=False):
        line(axes, numbers, accuracy, style, title)
    axes.set(xlabel="layers", ylabel="accuracy", xticks=range(1, 9))
    axes.grid(alpha=0.2)
    legend_below(figure)
    return figure


def modes_figure(panels: Mapping[str, tuple[BySeed, Mapping[int, BySeed]]]) -> Figure:
    """Draw early stopping against position: gates alone, gates together, and networks with one gate only.

    Args:
        panels: by the data set's title: the network of eight layers, and those of one layer by block.
    """
    figure, axes_of = _panels(panels)
    for axes, (title, (several, singles)) in zip(axes_of, panels.items(), strict=True):
        gates = range(max((len(result["test"]["gates"]) for result in several.values()), default=0))
        ways: tuple[tuple[str, Callable[[dict[str, Any], int], float], tuple[str, str]], ...] = (
            ("incremental", incremental, (POSITIVE, "o")),
            ("independent", lambda result, k: stopping_at(result, COMPARED_LOSS, gate=k), (NEGATIVE, "^")),
        )
        for name, way, style in ways:
            points = {10 * (k + 1): MeanStd.of([way(result, k) for result in several.values()]) for k in gates}
            _spreads(axes, points, style, name)
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
    """Return the accuracy on test data, at the point "accurate" where there is a gate."""
    return float(at_operating_point(result)["accuracy"])


def line(
    axes: Axes, points: Mapping[Any, BySeed], quantity: Quantity, style: tuple[str, str], label: str | None
) -> None:
    """Draw means over seeds, with standard deviations, of the points that are computed."""
    spreads = {x: MeanStd.of([quantity(r) for r in results.values()]) for x, results in points.items() if results}
    _spreads(axes, spreads, style, label)


def legend_below(figure: Figure) -> None:
    """Put one legend of all panels below them; each name once."""
    named = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=4, frameon=False)


def in_percent(axis: Axis) -> None:
    """Write the shares of an axis in percent."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")


def _corner(axes: Axes) -> None:
    """Show the upper left corner of curves: from `FROM` on, and no lower than they are there."""
    lowest = min(np.interp(FROM, np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata())) for curve in axes.lines)
    axes.set(xscale="log", xlim=(FROM, 1), ylim=(np.floor(10 * lowest) / 10, 1.0))
    axes.set_xticks([0.01, 0.02, 0.05, 0.1, 0.2, 1])
    axes.xaxis.set_minor_formatter(NullFormatter())
    in_percent(axes.xaxis)
    in_percent(axes.yaxis)
    axes.grid(alpha=0.2)
    axes.legend(loc="lower right")


def _cross(axes: Axes, results: BySeed, color: str, marker: str) -> None:
    """Draw a point with the standard deviations of both values."""
    x = MeanStd.of([at_operating_point(result)["early_stopping"] for result in results.values()])
    y = MeanStd.of([accuracy(result) for result in results.values()])
    axes.errorbar(x.mean, y.mean, xerr=x.std, yerr=y.std, fmt=marker, color=color, markersize=7, linewidth=1, zorder=3)


def _spreads(axes: Axes, points: Mapping[Any, MeanStd], style: tuple[str, str], label: str | None) -> None:
    if not points:
        return
    color, marker = style
    means, stds = [point.mean for point in points.values()], [point.std for point in points.values()]
    axes.errorbar(
        list(points), means, yerr=stds, color=color, marker=marker, markersize=5, capsize=2, linewidth=1.4, label=label
    )


def _at_depth(places: Mapping[int, BySeed]) -> dict[int, BySeed]:
    """Return results by depth in percent: each block is 10 % of the network."""
    return {10 * block: results for block, results in places.items()}


def _depth(axes: Axes) -> None:
    axes.set(xlabel="depth of the gate, in percent", xticks=range(10, 90, 10))
    axes.grid(alpha=0.2)


def _panels(titles: Mapping[str, Any]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel a title, two in a row."""
    columns, rows = min(2, len(titles)), ceil(len(titles) / 2)
    size = PANEL[0] * columns, PANEL[1] * rows + 0.5
    figure = Figure(figsize=(max(5.5, size[0]), size[1]), layout="constrained")
    every = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in every[len(titles) :]:
        axes.remove()
    return figure, every[: len(titles)]
