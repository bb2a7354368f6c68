"""What is measured of a trained network, on one part of the data: plain values that go into a result file.

An exit threshold can buy any early stopping, so gates are compared as curves: by their AUC, and by the early stopping
at equal positives lost (`LOSS_LEVELS`). Where a single point is wanted, its thresholds were chosen on validation data.

Several gates share what may be lost. How they share it is fixed on validation data (`incremental`), as a path along
which all thresholds move together; on it a cascade has one curve like a single gate.
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
from penstock.evaluation.outputs import cascade, collect_outputs
from penstock.evaluation.threshold_path import Path, SingleGatePath, best_threshold_path
from penstock.gating.network import GatedNetwork
from reproduction.baselines.branchynet import Exit, Heard, hear, leave

LOSS_LEVELS = (0.005, 0.01, 0.02)
"""Shares of positives lost at which gates are compared."""

Thresholds: TypeAlias = Sequence[float | None]

ACCURACY_TOLERANCE = 0.001
"""What accuracy may fall below its best at the point "accurate"; smaller differences are noise."""

TRIED = 401
"""Thresholds tried for it."""

NEGATIVES_PASSED = np.concatenate([np.linspace(0, 0.1, 51), np.linspace(0.11, 1, 90)])
"""Where the curve of a gate is kept: finer where gates work."""


class OperatingPoints(NamedTuple):
    """What is chosen on validation data, before anything is tested.

    Attributes:
        points: thresholds by the name of the operating point. "even" is a probability of ½ at each gate (for an exit,
            half of the highest entropy); "accurate" stops as much as it can while the accuracy stays within
            `ACCURACY_TOLERANCE` of the best that any threshold gives; "lost 0.01" loses 1 % of the
            positives in the whole cascade.
        incremental: threshold paths of the first gate, of the first two gates, and so on.
    """

    points: dict[str, Thresholds]
    incremental: list[Path | SingleGatePath]


@dataclass(frozen=True)
class Said:
    """What a network says of every sample of some data.

    Attributes:
        labels: the truth.
        predicted: the network's answer where nothing is stopped.
        gates: each layer's gate logits.
        gated: the layers that have a gate.
        background: the answer where a gate stops a sample.
        weights: of the samples in an accuracy.
        heard: for BranchyNet, whose exits answer with labels of their own.
    """

    labels: Tensor
    predicted: Tensor
    gates: list[Tensor | None]
    gated: list[int]
    background: int
    weights: Tensor
    heard: Heard | None

    @classmethod
    def of(cls, net: GatedNetwork, data: Data, positive_share: float | None) -> Said:
        """Run the network over the data."""
        labels, logits, gates = collect_outputs(net, data)
        weights = stream_weights(labels != net.background, positive_share)
        heard = hear(net, data) if any(isinstance(layer.gate, Exit) for layer in net.layers) else None
        return cls(labels, logits.argmax(1), gates, sorted(net.active()), net.background, weights, heard)

    @property
    def positive(self) -> Tensor:
        """Which samples are of interest."""
        return self.labels != self.background

    def scores(self, gates: int) -> np.ndarray:
        """Return the logits of the first so many gates, side by side: (samples, gates)."""
        return np.stack([self.gates[i].double().numpy() for i in self.gated[:gates]], axis=1)  # type: ignore[union-attr]

    def stopped(self, thresholds: Thresholds, active: Sequence[int] | None = None) -> Tensor:
        """Return which samples some gate stops."""
        return cascade(self.gates, thresholds, self.gated if active is None else active, samples=len(self.labels)) >= 0

    def accuracy(self, thresholds: Thresholds, active: Sequence[int] | None = None) -> float:
        """Return the share of right answers with gates."""
        if self.heard is not None:
            answers = leave(self.heard, thresholds).predicted
        else:
            answers = self.predicted.masked_fill(self.stopped(thresholds, active), self.background)
        return self.mean(answers == self.labels)

    def mean(self, correct: Tensor) -> float:
        """Return the mean over the stream that accuracies are meant for."""
        return (correct.double() * self.weights).mean().item()


def choose_operating_points(
    net: GatedNetwork, validation: Data, positive_share: float | None = None
) -> OperatingPoints:
    """Choose operating points and the cascades' paths."""
    points: dict[str, Thresholds] = {"even": [None if t is None else 0.0 for t in net.thresholds]}
    said = Said.of(net, validation, positive_share)
    if not said.gated:
        return OperatingPoints(points, [])
    positive, count = said.positive.numpy(), len(said.gated)
    scores = said.scores(count)
    negatives = scores[~positive]

    def passed(thresholds: np.ndarray) -> np.ndarray:
        return (negatives[:, : thresholds.shape[1]] >= thresholds[:, None]).all(2).mean(1)

    paths = [best_threshold_path(scores[positive, : k + 1], passed) for k in range(count)]

    def at_level(level: float) -> Thresholds:
        chosen: list[float | None] = [None] * len(net.layers)
        for i, threshold in zip(said.gated, paths[-1].thresholds(level).tolist(), strict=True):
            chosen[i] = threshold if count == 1 else rounded_down(threshold)
        return chosen

    levels = paths[-1].levels(scores)
    points["accurate"] = _accurate(said, [at_level(level) for level in np.quantile(levels, np.linspace(0, 1, TRIED))])
    weakest = np.sort(levels[positive])
    for lost in LOSS_LEVELS:
        points[f"lost {lost:g}"] = at_level(float(weakest[int(lost * len(weakest))]))  # what is below it is lost
    return OperatingPoints(points, paths)


def _accurate(said: Said, ways: Sequence[Thresholds]) -> Thresholds:
    """Return the last of ever higher thresholds whose accuracy is within `ACCURACY_TOLERANCE` of the best."""
    accuracies = np.array([said.accuracy(thresholds) for thresholds in ways])
    return ways[int(np.flatnonzero(accuracies >= accuracies.max() - ACCURACY_TOLERANCE)[-1])]


def measure(net: GatedNetwork, data: Data, choices: OperatingPoints, *, positive_share: float | None) -> dict[str, Any]:
    """Return accuracy, early stopping and positives lost at each operating point, and each gate's curve.

    Args:
        choices: made on validation data.
        positive_share: of the stream that accuracies are meant for; None for the data's own.
    """
    said = Said.of(net, data, positive_share)
    positive, mistaken = said.positive, said.predicted != said.labels

    def stopping(thresholds: Thresholds, active: Sequence[int] | None = None) -> dict[str, float]:
        stopped = said.stopped(thresholds, active)
        return {
            "accuracy": said.accuracy(thresholds, active),
            "early_stopping": stopped[~positive].double().mean().item(),
            "positive_lost_rate": stopped[positive].double().mean().item(),
            "negative_correction_rate": metrics.negative_correction_rate(stopped, positive, mistaken),
        }

    result: dict[str, Any] = {
        "samples": len(said.labels),
        "positives": int(positive.sum()),
        "accuracy_open": said.mean(~mistaken),
        "points": {
            name: {"thresholds": list(thresholds), **stopping(thresholds)}
            for name, thresholds in choices.points.items()
        },
        "gates": [_curve(logit, positive) if i in said.gated else None for i, logit in enumerate(said.gates)],
    }
    if len(said.gated) > 1:
        even = choices.points["even"]
        result["modes"] = {
            "independent": [stopping(even, [i]) for i in said.gated],
            "incremental": [
                {**stopping(even, said.gated[:k]), **_at_equal_loss(path.levels(said.scores(k)), positive)}
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
    """Return weights of mean 1 that give positives this share of the whole.

    >>> stream_weights(torch.tensor([True, False, False, False]), 0.1).tolist()
    [0.4, 1.2, 1.2, 1.2]
    """
    if positive_share is None:
        return torch.ones(len(positive), dtype=torch.float64)
    own = positive.double().mean()
    share = torch.tensor(positive_share, dtype=torch.float64)
    return torch.where(positive, share / own, (1 - share) / (1 - own))
