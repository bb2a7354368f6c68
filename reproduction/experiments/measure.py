"""Measure a trained network on one part of the data, as plain values for a result file.

Any early stopping can be reached by moving a threshold, so gates are compared by their curves: AUC, and early stopping
at equal positive loss (`LOSS_LEVELS`). The thresholds of single operating points are chosen on validation data.

Several gates share the permitted loss. How they share it is fixed on validation data (`incremental`) as a path along
which all thresholds move together, so that a cascade has one curve, like a single gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from penstock.datasets.loading import Data
from penstock.evaluation import metrics
from penstock.evaluation.calibrate import rounded_down
from penstock.evaluation.outputs import collect_outputs
from penstock.evaluation.threshold_path import Path, SingleGatePath, best_threshold_path
from penstock.gating.cascade import exit_stages
from penstock.gating.network import GatedNetwork
from reproduction.baselines.branchynet import Exit, ExitOutputs, collect_exit_outputs, take_exits

LOSS_LEVELS = (0.005, 0.01, 0.02)
"""Shares of positives lost at which gates are compared."""

Thresholds: TypeAlias = Sequence[float | None]

ACCURACY_TOLERANCE = 0.001
"""Accuracy that the point "accurate" may lose against the best threshold; smaller differences are noise."""

CANDIDATES = 401
"""Thresholds compared for the point "accurate"."""

NEGATIVES_PASSED = np.concatenate([np.linspace(0, 0.1, 51), np.linspace(0.11, 1, 90)])
"""Points of the stored ROC curve; denser where gates operate."""


class OperatingPoints(NamedTuple):
    """Thresholds chosen on validation data.

    Attributes:
        points: thresholds by name of the operating point. "even": a score of ½ at each gate (for an exit, half of
            the maximum entropy). "accurate": stops as much as possible while the accuracy stays within
            `ACCURACY_TOLERANCE` of the best over all thresholds. "lost 0.01": the cascade loses 1 % of the positives.
        incremental: threshold paths of the first gate, of the first two gates, and so on.
    """

    points: dict[str, Thresholds]
    incremental: list[Path | SingleGatePath]


@dataclass(frozen=True)
class NetworkOutputs:
    """Outputs of a network for every sample of a data set.

    Attributes:
        labels: true labels.
        predicted: predicted labels with all gates open.
        gates: gate logits of each layer.
        gated: indices of layers that have a gate.
        background: label of stopped samples.
        weights: sample weights in accuracies.
        exits: outputs of BranchyNet's exits, which predict labels of their own; None for other networks.
    """

    labels: Tensor
    predicted: Tensor
    gates: list[Tensor | None]
    gated: list[int]
    background: int
    weights: Tensor
    exits: ExitOutputs | None

    @classmethod
    def of(cls, net: GatedNetwork, data: Data, positive_share: float | None) -> NetworkOutputs:
        """Run the network over the data."""
        labels, logits, gates = collect_outputs(net, data)
        weights = stream_weights(labels != net.background, positive_share)
        exits = collect_exit_outputs(net, data) if any(isinstance(layer.gate, Exit) for layer in net.layers) else None
        return cls(labels, logits.argmax(1), gates, sorted(net.active()), net.background, weights, exits)

    @property
    def positive(self) -> Tensor:
        """Which samples are positive."""
        return self.labels != self.background

    def scores(self, gates: int) -> np.ndarray:
        """Return the logits of the first ``gates`` gates: (samples, gates)."""
        return np.stack([self.gates[i].double().numpy() for i in self.gated[:gates]], axis=1)  # type: ignore[union-attr]

    def stopped(self, thresholds: Thresholds, active: Sequence[int] | None = None) -> Tensor:
        """Return which samples some gate stops."""
        active = self.gated if active is None else active
        stages = exit_stages(self.gates, thresholds, samples=len(self.labels), active=active)
        return stages <= len(self.gates)

    def accuracy(self, thresholds: Thresholds, active: Sequence[int] | None = None) -> float:
        """Return the weighted accuracy with gates."""
        if self.exits is not None:
            answers = take_exits(self.exits, thresholds).predicted
        else:
            answers = self.predicted.masked_fill(self.stopped(thresholds, active), self.background)
        return self.mean(answers == self.labels)

    def mean(self, correct: Tensor) -> float:
        """Return the weighted mean."""
        return (correct.double() * self.weights).mean().item()


def choose_operating_points(
    net: GatedNetwork, validation: Data, positive_share: float | None = None
) -> OperatingPoints:
    """Choose operating points and threshold paths."""
    points: dict[str, Thresholds] = {"even": [None if t is None else 0.0 for t in net.thresholds]}
    outputs = NetworkOutputs.of(net, validation, positive_share)
    if not outputs.gated:
        return OperatingPoints(points, [])
    positive, count = outputs.positive.numpy(), len(outputs.gated)
    scores = outputs.scores(count)
    negatives = scores[~positive]

    def passed(thresholds: np.ndarray) -> np.ndarray:
        return (negatives[:, : thresholds.shape[1]] >= thresholds[:, None]).all(2).mean(1)

    paths = [best_threshold_path(scores[positive, : k + 1], passed) for k in range(count)]

    def at_level(level: float) -> Thresholds:
        chosen: list[float | None] = [None] * len(net.layers)
        for i, threshold in zip(outputs.gated, paths[-1].thresholds(level).tolist(), strict=True):
            chosen[i] = threshold if count == 1 else rounded_down(threshold)
        return chosen

    levels = paths[-1].levels(scores)
    points["accurate"] = _accurate(
        outputs, [at_level(level) for level in np.quantile(levels, np.linspace(0, 1, CANDIDATES))]
    )
    weakest = np.sort(levels[positive])
    for lost in LOSS_LEVELS:
        points[f"lost {lost:g}"] = at_level(float(weakest[int(lost * len(weakest))]))  # samples below it are lost
    return OperatingPoints(points, paths)


def _accurate(outputs: NetworkOutputs, candidates: Sequence[Thresholds]) -> Thresholds:
    """Return the last candidate, in ascending order, whose accuracy is within `ACCURACY_TOLERANCE` of the best."""
    accuracies = np.array([outputs.accuracy(thresholds) for thresholds in candidates])
    return candidates[int(np.flatnonzero(accuracies >= accuracies.max() - ACCURACY_TOLERANCE)[-1])]


def measure(net: GatedNetwork, data: Data, choices: OperatingPoints, *, positive_share: float | None) -> dict[str, Any]:
    """Return accuracy, early stopping and positives lost at each operating point, and each gate's curve.

    Args:
        choices: operating points chosen on validation data.
        positive_share: share of positives that accuracies are weighted to; None to keep that of the data.
    """
    outputs = NetworkOutputs.of(net, data, positive_share)
    positive, mistaken = outputs.positive, outputs.predicted != outputs.labels

    def stopping(thresholds: Thresholds, active: Sequence[int] | None = None) -> dict[str, float]:
        stopped = outputs.stopped(thresholds, active)
        return {
            "accuracy": outputs.accuracy(thresholds, active),
            "early_stopping": stopped[~positive].double().mean().item(),
            "positive_lost_rate": stopped[positive].double().mean().item(),
            "negative_correction_rate": metrics.negative_correction_rate(stopped, positive, mistaken),
        }

    result: dict[str, Any] = {
        "samples": len(outputs.labels),
        "positives": int(positive.sum()),
        "accuracy_open": outputs.mean(~mistaken),
        "points": {
            name: {"thresholds": list(thresholds), **stopping(thresholds)}
            for name, thresholds in choices.points.items()
        },
        "gates": [_curve(logit, positive) if i in outputs.gated else None for i, logit in enumerate(outputs.gates)],
    }
    if len(outputs.gated) > 1:
        even = choices.points["even"]
        result["modes"] = {
            "independent": [stopping(even, [i]) for i in outputs.gated],
            "incremental": [
                {**stopping(even, outputs.gated[:k]), **_at_equal_loss(path.levels(outputs.scores(k)), positive)}
                for k, path in enumerate(choices.incremental, start=1)
            ],
        }
    return result


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
    return {
        "early_stopping_at": {f"{lost:g}": 1 - metrics.pass_through_at(scores, positive, lost) for lost in LOSS_LEVELS}
    }


def stream_weights(positive: Tensor, positive_share: float | None) -> Tensor:
    """Return sample weights of mean 1 that give positives this share of the total.

    >>> stream_weights(torch.tensor([True, False, False, False]), 0.1).tolist()
    [0.4, 1.2, 1.2, 1.2]
    """
    if positive_share is None:
        return torch.ones(len(positive), dtype=torch.float64)
    own = positive.double().mean()
    share = torch.tensor(positive_share, dtype=torch.float64)
    return torch.where(positive, share / own, (1 - share) / (1 - own))
