"""A comparison as a picture: what a sample costs, and what is stopped, against the positives lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from penstock.comparison.config import EARLY_EXIT, GATE_ONLY, GATED, TWO_NETWORKS, YOURS
from penstock.comparison.points import RATIOS, Point, averaged
from penstock.evaluation.plots import NEGATIVE, NEUTRAL, POSITIVE, write_figure
from penstock.gating.tables import count

if TYPE_CHECKING:
    from penstock.comparison.compare import Comparison

COLORS = {YOURS: NEUTRAL, GATED: POSITIVE, GATE_ONLY: "#e6ab02", EARLY_EXIT: "#7570b3", TWO_NETWORKS: NEGATIVE}


def plot_comparison(comparison: Comparison, folder: Path) -> Path:
    """Draw the comparison; return the file written."""
    return write_figure(comparison_figure(comparison), folder / "comparison.png")


def comparison_figure(comparison: Comparison) -> Figure:
    """Draw a line for each contestant: the mean over the seeds, and each seed as a small dot."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    cost, stopping = figure.subplots(1, 2)
    _lines(cost, comparison, lambda point: point.costs[0].macs)
    _lines(stopping, comparison, lambda point: 100 * point.early_stopping)
    cost.set(ylabel="MACs a sample", title=f"Cost at 1:{RATIOS[0]}: the lower, the better", ylim=(0, None))
    cost.yaxis.set_major_formatter(lambda macs, _: count(macs))
    stopping.set(ylabel="negatives stopped, %", title="Early stopping: the higher, the better")
    for axes in (cost, stopping):
        axes.set(xlabel="positives lost on test data, %")
        axes.grid(alpha=0.2)
    names = comparison.contestants
    figure.legend(*cost.get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    return figure


def _lines(axes: Axes, comparison: Comparison, value: Callable[[Point], float]) -> None:
    for name in comparison.contestants:
        seeds = [comparison.of(name, allowed) for allowed in sorted(comparison.lost)]
        means = [averaged(points) for points in seeds]
        axes.plot([100 * p.lost for p in means], [value(p) for p in means], "o-", color=COLORS[name], label=name)
        if comparison.seeds > 1:
            each = [point for points in seeds for point in points]
            axes.plot([100 * p.lost for p in each], [value(p) for p in each], ".", color=COLORS[name], alpha=0.4)
