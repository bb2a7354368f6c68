"""The paper's figures that analyse one data set: α, β, φ, the gate's input, two-stage training and dropout.

Each function takes results by setting and seed and returns a figure; missing results are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from penstock.evaluation.plots import NEGATIVE, NEUTRAL, POSITIVE
from reproduction.page.dataset_figures import STYLES, Quantity, accuracy, in_percent, legend_below, line
from reproduction.results.claims import COMPARED_LOSS
from reproduction.results.finished_runs import BySeed
from reproduction.results.paper_table1 import BASELINE
from reproduction.results.summary import MeanStd

SIZE = (8.2, 3.5)
NETWORK = ("#2a8f5b", "s")
"""Colour and marker of values of the network, next to those of the gate."""


def phi_figure(results: BySeed) -> Figure:
    """Plot the histogram of φ; dimensions above ½ are kept."""
    figure = Figure(figsize=(6.6, 3.4), layout="constrained")
    axes = figure.subplots()
    counts = np.array([result["layers"][0]["phi_histogram"] for result in results.values()]).sum(0)
    edges = np.linspace(0, 1, len(counts) + 1)
    half = len(counts) // 2
    axes.stairs(counts[:half] / counts.sum(), edges[: half + 1], fill=True, color=NEUTRAL, label="dropped")
    axes.stairs(counts[half:] / counts.sum(), edges[half:], fill=True, color=POSITIVE, label="kept")
    axes.axvline(0.5, color="black", linewidth=1)
    lowest = 10 ** np.floor(np.log10(1 / counts.sum()))
    axes.set(xlabel="φ", ylabel="share of the dimensions", xlim=(0, 1), yscale="log", ylim=(lowest, 1))
    in_percent(axes.yaxis)
    return _with_legend(figure, axes)


def alpha_figure(baseline: BySeed, alphas: Mapping[float, BySeed]) -> Figure:
    """Plot the effect of α on the accuracy of the network and on the gate."""
    figure, left, right = _pair()
    _level(left, baseline, accuracy, "Baseline")
    line(left, alphas, accuracy, NETWORK, "with a gate")
    left.set(title="the network", xlabel="α", ylabel="accuracy")
    line(right, alphas, gate_auc, (NEGATIVE, "^"), "AUC")
    line(right, alphas, gate_stopping, (POSITIVE, "o"), "early stopping, at 1 % of positives lost")
    right.set(title="the gate", xlabel="α", ylim=(None, 1.01))
    return _with_legend(figure, left, right)


def beta_figure(baseline: BySeed, betas: Mapping[float, BySeed]) -> Figure:
    """Plot the effect of β on the accuracy of the network and on the mask."""
    figure, left, right = _pair()
    _level(left, baseline, accuracy, "Baseline")
    line(left, betas, accuracy, NETWORK, "with a layer")
    left.set(title="the network", xlabel="β", ylabel="accuracy")
    line(right, betas, lambda result: float(result["activation_sparsity"]), (NEGATIVE, "^"), "activation sparsity")
    right.set(title="the mask", xlabel="β", ylabel="values dropped", ylim=(-0.03, 1.03))
    in_percent(right.yaxis)
    return _with_legend(figure, left, right)


def gate_input_figure(blocks: Mapping[int, BySeed]) -> Figure:
    """Plot the effect of the block that the gate reads; the mask stays after block 4."""
    figure, left, right = _pair()
    line(left, blocks, gate_auc, (NEGATIVE, "^"), "AUC of the gate")
    line(right, blocks, accuracy, NETWORK, "accuracy of the network")
    names = ["raw", *map(str, range(1, 8))]
    for axes in (left, right):
        axes.axvline(4, color=NEUTRAL, linestyle=":", label="the mask" if axes is left else None)
        axes.set(xlabel="block read by the gate", xticks=range(8))
        axes.set_xticklabels(names)
    left.set(title="the gate", ylabel="AUC")
    right.set(title="the network", ylabel="accuracy")
    return _with_legend(figure, left, right)


def two_stages_figure(joint: BySeed, plain: Mapping[int, BySeed], compressed: Mapping[int, BySeed]) -> Figure:
    """Plot alternating training for N epochs each, without and with compression, against joint training.

    Args:
        joint: results of joint training.
        plain, compressed: results of alternating training by N, without and with compression.
    """
    figure, left, right = _pair()
    for axes, quantity in ((left, accuracy), (right, gate_stopping)):
        first = axes is left
        _level(axes, joint, quantity, "joint" if first else None)
        line(axes, plain, quantity, (NEGATIVE, "^"), "alternating, without compression" if first else None)
        line(axes, compressed, quantity, (POSITIVE, "o"), "alternating, with compression" if first else None)
        axes.set(xlabel="N, epochs between switches", xscale="log", xticks=sorted({*plain, *compressed}))
        axes.set_xticks([], minor=True)
        axes.set_xticklabels([str(epochs) for epochs in sorted({*plain, *compressed})])
    left.set(title="the network", ylabel="accuracy")
    right.set(title="the gate, at 1 % of positives lost", ylabel="early stopping")
    in_percent(right.yaxis)
    return _with_legend(figure, left, right)


def dropout_figure(baseline: BySeed, rates: Mapping[float, BySeed], ours: Mapping[str, BySeed]) -> Figure:
    """Plot the accuracy of the plain network against its dropout rate; GC networks are horizontal lines.

    Args:
        baseline: results without dropout.
        rates: results with dropout, by rate.
        ours: results with a layer, by row of table 1.
    """
    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    axes = figure.subplots()
    line(axes, {0.0: baseline, **rates}, accuracy, STYLES[BASELINE], "Baseline, with dropout")
    for name, results in ours.items():
        _level(axes, results, accuracy, name, STYLES[name][0])
    axes.set(xlabel="dropout rate", ylabel="accuracy", xlim=(-0.03, 1.1 * max(rates)))
    return _with_legend(figure, axes)


def gate_auc(result: dict[str, Any]) -> float:
    """Return the AUC of the network's only gate."""
    return float(_gate(result)["auc"])


def gate_stopping(result: dict[str, Any]) -> float:
    """Return the early stopping of the network's only gate at 1 % of positives lost."""
    return float(_gate(result)["early_stopping_at"][COMPARED_LOSS])


def _gate(result: dict[str, Any]) -> dict[str, Any]:
    return next(gate for gate in result["test"]["gates"] if gate is not None)


def _pair() -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, left, right


def _level(axes: Axes, results: BySeed, quantity: Quantity, label: str | None, colour: str = "#333333") -> None:
    """Plot a mean over seeds as a horizontal line, with a band of one standard deviation."""
    if results:
        level = MeanStd.of([quantity(result) for result in results.values()])
        axes.axhline(level.mean, color=colour, linestyle="--", linewidth=1.2, label=label)
        axes.axhspan(level.mean - level.std, level.mean + level.std, color=colour, alpha=0.1, linewidth=0)


def _with_legend(figure: Figure, *panels: Axes) -> Figure:
    """Add grids and a common legend."""
    for axes in panels:
        axes.grid(alpha=0.2)
    legend_below(figure)
    return figure
