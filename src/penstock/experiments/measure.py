"""What is measured of a trained network, on one part of the data: plain values that go into a result file.

An exit threshold can buy any early stopping, so gates are compared as curves: by their AUC, and by the early stopping
at equal positives lost (`LOST`). Where a single point is wanted, its thresholds were chosen on validation data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock import metrics
from penstock.baselines.branchynet import Exit, exits
from penstock.data.batches import Data
from penstock.network import GatedNetwork
from penstock.outcomes import cascade, collect

LOST = (0.005, 0.01, 0.02)
"""Shares of positives lost at which gates are compared."""

CURVE_POINTS = 101


def thresholds_at(net: GatedNetwork, validation: Data, lost: float) -> list[float | None]:
    """Return each gate's highest threshold that, alone, loses at most this share of the validation positives."""
    labels, _, gates = collect(net, validation)
    chosen: list[float | None] = []
    for layer, logit in zip(net.layers, gates, strict=True):
        if layer.gate is None or logit is None:
            chosen.append(None)
            continue
        positives = logit[layer.gate.omega(labels, net.background)].double().sort().values
        chosen.append(positives[int(lost * len(positives))].item())  # what is below it is lost
    return chosen


def measure(
    net: GatedNetwork,
    data: Data,
    *,
    positive_share: float | None,
    points: dict[str, Sequence[float | None]],
) -> dict[str, Any]:
    """Return accuracy, early stopping and positives lost at each operating point, and each gate's curve.

    Args:
        positive_share: of the stream that accuracies are meant for; None for the data's own.
        points: thresholds by the name of the operating point. Each gate alone is measured at its threshold, and all
            of them together.
    """
    labels, logits, gates = collect(net, data)
    weights = stream_weights(labels != net.background, positive_share)
    predicted = logits.argmax(1)
    result: dict[str, Any] = {
        "samples": len(labels),
        "positives": int((labels != net.background).sum()),
        "accuracy_open": _mean(predicted == labels, weights),
        "gates": [_curve(net, i, labels, logit) for i, logit in enumerate(gates)],
        "points": {},
    }
    for name, thresholds in points.items():
        result["points"][name] = _point(net, data, labels, predicted, gates, thresholds, weights)
    return result


def _point(
    net: GatedNetwork,
    data: Data,
    labels: Tensor,
    predicted: Tensor,
    gates: Sequence[Tensor | None],
    thresholds: Sequence[float | None],
    weights: Tensor,
) -> dict[str, Any]:
    positive = labels != net.background
    gated = sorted(net.active())

    def stopping(active: Sequence[int]) -> dict[str, float]:
        stopped = cascade(gates, thresholds, active, samples=len(labels)) >= 0
        label = predicted.masked_fill(stopped, net.background)
        return {
            "accuracy": _mean(label == labels, weights),
            "early_stopping": stopped[~positive].double().mean().item(),
            "positive_lost_rate": stopped[positive].double().mean().item(),
            "negative_correction_rate": (stopped & (predicted != labels))[~positive].double().mean().item(),
        }

    point: dict[str, Any] = {"thresholds": list(thresholds), **stopping(gated)}
    if any(isinstance(layer.gate, Exit) for layer in net.layers):
        before = net.thresholds
        net.thresholds = thresholds
        point["accuracy"] = _mean(exits(net, data).predicted == labels, weights)  # with the labels of its exit
        net.thresholds = before
    if len(gated) > 1:
        point["independent"] = [stopping([i]) for i in gated]
        point["incremental"] = [stopping(gated[: k + 1]) for k in range(len(gated))]
    return point


def _curve(net: GatedNetwork, i: int, labels: Tensor, logit: Tensor | None) -> dict[str, Any] | None:
    gate = net.layers[i].gate
    if gate is None or logit is None:
        return None
    positive = gate.omega(labels, net.background)
    passed = np.linspace(0, 1, CURVE_POINTS)
    false, true = metrics.roc(logit, positive)
    return {
        "auc": metrics.auc(logit, positive),
        "early_stopping_at": {f"{lost:g}": 1 - metrics.pass_through_at(logit, positive, lost) for lost in LOST},
        "roc": {
            "negatives_passed": passed.round(4).tolist(),
            "positives_passed": np.interp(passed, false.numpy(), true.numpy()).round(5).tolist(),
        },
    }


def stream_weights(positive: Tensor, positive_share: float | None) -> Tensor:
    """Return weights of mean 1 that give positives this share of the whole.

    >>> stream_weights(torch.tensor([True, False, False, False]), 0.1).tolist()
    [0.4, 1.2, 1.2, 1.2]
    """
    if positive_share is None:
        return torch.ones(len(positive), dtype=torch.float64)
    own = positive.double().mean()
    share = torch.tensor(positive_share, dtype=torch.float64)
    return torch.where(positive, share / own, (1 - share) / (1 - own))


def _mean(correct: Tensor, weights: Tensor) -> float:
    return (correct.double() * weights).mean().item()
