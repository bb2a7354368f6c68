"""What is measured of a trained network, on one part of the data: plain values that go into a result file.

An exit threshold can buy any early stopping, so gates are compared as curves: by their AUC, and by the early stopping
at equal positives lost (`LOST`). Where a single point is wanted, its thresholds were chosen on validation data.

Several gates share what may be lost. How they share it is fixed on validation data (`incremental`), as a path along
which all thresholds move together; on it a cascade has one curve like a single gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from penstock import metrics
from penstock.baselines.branchynet import Exit, exits
from penstock.calibration import OneGate, Path, best_path, rounded_down
from penstock.data.batches import Data
from penstock.network import GatedNetwork
from penstock.outcomes import cascade, collect

LOST = (0.005, 0.01, 0.02)
"""Shares of positives lost at which gates are compared."""

Thresholds: TypeAlias = Sequence[float | None]

NEGATIVES_PASSED = np.concatenate([np.linspace(0, 0.1, 51), np.linspace(0.11, 1, 90)])
"""Where the curve of a gate is kept: finer where gates work."""


class Choices(NamedTuple):
    """What is chosen on validation data, before anything is tested.

    Attributes:
        points: thresholds by the name of the operating point: "even" is a probability of ½ at each gate, "lost 0.01"
            loses 1 % of the validation positives in the whole cascade.
        incremental: of the first gate, of the first two, and so on: how they share what may be lost.
    """

    points: dict[str, Thresholds]
    incremental: list[Path | OneGate]


def choose(net: GatedNetwork, validation: Data) -> Choices:
    """Choose operating points and the cascades' paths."""
    points: dict[str, Thresholds] = {"even": [None if t is None else 0.0 for t in net.thresholds]}
    gated = sorted(net.active())
    if not gated:
        return Choices(points, [])
    labels, _, gates = collect(net, validation)
    scores, positive = _scores(gates, gated), (labels != net.background).numpy()
    negatives = scores[~positive]

    def passed(thresholds: list[float]) -> float:
        return float((negatives[:, : len(thresholds)] >= np.array(thresholds)).all(1).mean())

    paths = [best_path(scores[positive, : k + 1], passed) for k in range(len(gated))]
    levels = np.sort(paths[-1].levels(scores[positive]))
    for lost in LOST:
        at_level = paths[-1].thresholds(float(levels[int(lost * len(levels))]))  # what is below it is lost
        chosen: list[float | None] = [None] * len(net.layers)
        for i, threshold in zip(gated, at_level, strict=True):
            chosen[i] = threshold if len(gated) == 1 else rounded_down(threshold)
        points[f"lost {lost:g}"] = chosen
    return Choices(points, paths)


def measure(net: GatedNetwork, data: Data, choices: Choices, *, positive_share: float | None) -> dict[str, Any]:
    """Return accuracy, early stopping and positives lost at each operating point, and each gate's curve.

    Args:
        choices: made on validation data.
        positive_share: of the stream that accuracies are meant for; None for the data's own.
    """
    labels, logits, gates = collect(net, data)
    positive = labels != net.background
    weights = stream_weights(positive, positive_share)
    predicted = logits.argmax(1)
    gated = sorted(net.active())

    def stopping(thresholds: Thresholds, active: Sequence[int]) -> dict[str, float]:
        stopped = cascade(gates, thresholds, active, samples=len(labels)) >= 0
        label = predicted.masked_fill(stopped, net.background)
        return {
            "accuracy": _mean(label == labels, weights),
            "early_stopping": stopped[~positive].double().mean().item(),
            "positive_lost_rate": stopped[positive].double().mean().item(),
            "negative_correction_rate": (stopped & (predicted != labels))[~positive].double().mean().item(),
        }

    points: dict[str, Any] = {}
    for name, thresholds in choices.points.items():
        points[name] = {"thresholds": list(thresholds), **stopping(thresholds, gated)}
        if any(isinstance(layer.gate, Exit) for layer in net.layers):  # it answers with the labels of its exit
            points[name]["accuracy"] = _mean(_with_exits(net, data, thresholds) == labels, weights)
    result: dict[str, Any] = {
        "samples": len(labels),
        "positives": int(positive.sum()),
        "accuracy_open": _mean(predicted == labels, weights),
        "points": points,
        "gates": [_curve(logit, positive) if i in gated else None for i, logit in enumerate(gates)],
    }
    if len(gated) > 1:
        even = choices.points["even"]
        result["modes"] = {
            "independent": [stopping(even, [i]) for i in gated],
            "incremental": [
                {
                    **stopping(even, gated[: k + 1]),
                    **_at_equal_loss(path.levels(_scores(gates, gated[: k + 1])), positive),
                }
                for k, path in enumerate(choices.incremental)
            ],
        }
    return result


def _scores(gates: Sequence[Tensor | None], gated: Sequence[int]) -> np.ndarray:
    """Return the gates' logits side by side: (samples, gates)."""
    return np.stack([gates[i].double().numpy() for i in gated], axis=1)  # type: ignore[union-attr]


def _with_exits(net: GatedNetwork, data: Data, thresholds: Thresholds) -> Tensor:
    before = net.thresholds
    net.thresholds = thresholds
    predicted = exits(net, data).predicted
    net.thresholds = before
    return predicted


def _curve(logit: Tensor | None, positive: Tensor) -> dict[str, Any]:
    assert logit is not None
    false, true = metrics.roc(logit, positive)
    return {
        "auc": metrics.auc(logit, positive),
        **_at_equal_loss(logit, positive),
        "roc": {
            "negatives_passed": NEGATIVES_PASSED.round(4).tolist(),
            "positives_passed": np.interp(NEGATIVES_PASSED, false.numpy(), true.numpy()).round(5).tolist(),
        },
    }


def _at_equal_loss(levels: Tensor | np.ndarray, positive: Tensor) -> dict[str, Any]:
    scores = torch.as_tensor(levels)
    return {"early_stopping_at": {f"{lost:g}": 1 - metrics.pass_through_at(scores, positive, lost) for lost in LOST}}


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
