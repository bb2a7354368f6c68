"""Plots of an evaluation: ROC curves, score histograms, masks."""

from __future__ import annotations

import io
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from penstock.evaluation.evaluate import MAX_LOGIT
from penstock.runtime.files import write_atomically

if TYPE_CHECKING:
    from penstock.evaluation.evaluate import Evaluation, GateEvaluation
    from penstock.gating.network import GatedNetwork

POSITIVE, NEGATIVE, NEUTRAL = "#d95f02", "#1b6ca8", "#888888"
PROBABILITIES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)


def plot_evaluation(evaluation: Evaluation, folder: Path, net: GatedNetwork | None = None) -> list[Path]:
    """Draw all plots that apply; return the files written."""
    gates = [gate for gate in evaluation.gates if gate.curve is not None]
    written = []
    if gates:
        written.append(write_figure(roc_figure(gates), folder / "roc.png"))
        written.append(write_figure(scores_figure(gates), folder / "gate-scores.png"))
    if net is not None and any(layer.compression is not None for layer in net.layers):
        written.append(write_figure(mask_figure(net), folder / "mask.png"))
    return written


def roc_figure(gates: list[GateEvaluation]) -> Figure:
    """Draw the share of positives that pass against the share of negatives that pass: whole, and its best corner."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    whole, corner = figure.subplots(1, 2)
    whole.plot([0, 1], [0, 1], ":", color=NEUTRAL, label="a coin")
    for axes in (whole, corner):
        for i, gate in enumerate(gates):
            assert gate.curve is not None and gate.negative_pass_through_rate is not None
            assert gate.positive_lost_rate is not None
            axes.plot(*gate.curve, color=f"C{i}", label=f"{gate.name}: AUC {gate.auc:.4f}")
            point = gate.negative_pass_through_rate, 1 - gate.positive_lost_rate
            label = "its threshold" if i == len(gates) - 1 else None
            axes.plot(*point, "o", color=f"C{i}", markeredgecolor="black", label=label, zorder=3)
        axes.set(xlabel="negatives that pass", ylabel="positives that pass")
        axes.grid(alpha=0.2)
    whole.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), title="Gates: the further up and left, the better")
    corner.set(xlim=(-0.002, 0.2), ylim=(0.8, 1.002), title="The same, its upper left corner")
    whole.legend(loc="lower right")
    return figure


def scores_figure(gates: list[GateEvaluation]) -> Figure:
    """Draw how many negatives and positives get which score, and the threshold between them."""
    figure = Figure(figsize=(6.4, 2.6 * len(gates) + 1.0), layout="constrained")
    for axes, gate in zip(figure.subplots(len(gates), squeeze=False)[:, 0], gates, strict=True):
        assert gate.histogram is not None
        edges = np.linspace(-MAX_LOGIT, MAX_LOGIT, len(gate.histogram[0]) + 1)
        for counts, color, name in zip(gate.histogram, (NEGATIVE, POSITIVE), ("negatives", "positives"), strict=True):
            axes.stairs(counts, edges, fill=True, alpha=0.55, color=color, label=name)
        threshold = -MAX_LOGIT if gate.threshold is None else float(np.clip(gate.threshold, -MAX_LOGIT, MAX_LOGIT))
        axes.axvline(threshold, color="black", linewidth=1, label="threshold")
        axes.set_yscale("symlog", linthresh=10)
        title = f"Gate after {gate.name}: passes from {1 / (1 + np.exp(-threshold)):.3g}"
        axes.set(ylabel="samples", title=title, xlim=(-MAX_LOGIT, MAX_LOGIT), ylim=(0, None))
        axes.set_xticks(np.log([p / (1 - p) for p in PROBABILITIES]), [f"{p:g}" for p in PROBABILITIES])
    axes.set_xlabel("gate's probability that the sample is of interest (logit scale)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def mask_figure(net: GatedNetwork) -> Figure:
    """Draw each mask: dark is kept. Images as a tile a channel, series and tokens as one picture, features as a bar."""
    masked = [(i, layer) for i, layer in enumerate(net.layers) if layer.compression is not None]
    pictures = [_picture(layer.compression.mask.detach().cpu().numpy()) for _, layer in masked]  # type: ignore[union-attr]
    heights = [min(6.0, max(1.2, 9 * picture.shape[0] / picture.shape[1])) + 0.6 for picture in pictures]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    rows = figure.subplots(len(masked), squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, picture, (i, layer) in zip(rows, pictures, masked, strict=True):
        axes.imshow(picture, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
        kept = f"{layer.density:.1%} of {'×'.join(map(str, layer.feature))} kept"
        axes.set(title=f"Mask after {net.spec.at[i]}: {kept} (dark)", xticks=[], yticks=[])
    return figure


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, whole or not at all."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomically(path, content.getvalue())
    return path


def _picture(mask: np.ndarray) -> np.ndarray:
    if mask.ndim == 3 and mask.shape[1] > 1:
        return _tiles(mask)
    if mask.ndim == 2 and min(mask.shape) > 1:
        return mask
    return mask.reshape(1, -1)


def _tiles(mask: np.ndarray) -> np.ndarray:
    """Set the channels of (C, H, W) side by side, with lines between them."""
    channels, height, width = mask.shape
    columns = ceil(channels**0.5 * 1.4)
    rows = ceil(channels / columns)
    sheet = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 0.35)
    for i, tile in enumerate(mask):
        top, left = 1 + i // columns * (height + 1), 1 + i % columns * (width + 1)
        sheet[top : top + height, left : left + width] = tile
    return sheet
