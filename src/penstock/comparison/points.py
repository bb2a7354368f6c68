"""What a contestant answers and costs at each share of positives that may be lost.

Every contestant is a first network that may end a sample, and a rest that answers the others: `Answers` before any
threshold. Thresholds are chosen on validation data alone; what `points` returns is measured on test data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from penstock.evaluation import metrics
from penstock.evaluation.cost import mean_at
from penstock.evaluation.outputs import Outputs
from penstock.gating.cascade import is_stopped

RATIOS = (9, 99)
"""Negatives per positive of the streams for which costs are given."""
MEASURED = ("threshold", "lost", "early_stopping", "accuracy", "accuracy_open")
"""The numbers of a `Point` besides its costs."""


@dataclass(frozen=True)
class Answers:
    """The answers of a contestant to each sample of a data set, before any threshold.

    Attributes:
        labels: (n,), the true ones.
        final: (n,), the answer of the whole network.
        early: (n,), the answer if the sample ends early: the background, or the label of an early exit.
        scores: (n,); a sample ends early if its score is below the threshold.
        background: the label of negatives.
    """

    labels: Tensor
    final: Tensor
    early: Tensor
    scores: Tensor
    background: int

    @classmethod
    def of(cls, outputs: Outputs, background: int) -> Answers:
        """Return the answers in collected outputs: logits, scores, and the labels of an exit if there is one."""
        scores, *early = outputs.gates
        assert scores is not None
        exits = early[0] if early else torch.full_like(outputs.labels, background)
        assert exits is not None
        return cls(outputs.labels, outputs.logits.argmax(1), exits, scores.double(), background)

    @property
    def positive(self) -> Tensor:
        """Which samples are positives: (n,), bool."""
        return self.labels != self.background

    def ended(self, threshold: float) -> Tensor:
        """Return which samples end early: (n,), bool."""
        return is_stopped(self.scores, threshold)

    def stopped(self, threshold: float) -> Tensor:
        """Return which samples end early as background. A positive that ends with another label is not lost."""
        return self.ended(threshold) & (self.early == self.background)

    def to_json(self) -> dict[str, Any]:
        """Return them as plain values."""
        tensors = {name: getattr(self, name).tolist() for name in ("labels", "final", "early", "scores")}
        return tensors | {"background": self.background}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Answers:
        """Return what `to_json` described."""
        labels = {name: torch.tensor(raw[name]) for name in ("labels", "final", "early")}
        return cls(**labels, scores=torch.tensor(raw["scores"], dtype=torch.double), background=raw["background"])


@dataclass(frozen=True)
class Costs:
    """What each sample costs, and what one that does not end early costs on top of it.

    Attributes:
        first_macs, rest_macs: multiply-accumulates.
        first_bytes, rest_bytes: bytes across the cut.
    """

    first_macs: int
    rest_macs: int
    first_bytes: int
    rest_bytes: int


@dataclass(frozen=True)
class StreamCost:
    """The mean cost of a sample of a stream; seconds are None if they were not measured."""

    negatives_per_positive: int
    macs: float
    payload_bytes: float
    seconds: float | None


@dataclass(frozen=True)
class Point:
    """A contestant at one share of positives that may be lost, measured on test data.

    Attributes:
        allowed: the share that may be lost; on validation data, at most this share is.
        threshold: chosen for it on validation data.
        lost: the share of the test positives that is lost.
        early_stopping: the share of the test negatives that is stopped.
        accuracy: with what is stopped counted as background, and exits with their own labels.
        accuracy_open: of the whole network, nothing ending early.
        costs: for each of `RATIOS`.
    """

    contestant: str
    seed: int
    allowed: float
    threshold: float
    lost: float
    early_stopping: float
    accuracy: float
    accuracy_open: float
    costs: tuple[StreamCost, ...]


def averaged(points: Sequence[Point]) -> Point:
    """Return the mean of the points of several seeds."""
    first, costs = points[0], [point.costs for point in points]
    means: dict[str, Any] = {name: fmean(getattr(point, name) for point in points) for name in MEASURED}
    return replace(first, **means, costs=tuple(_averaged_cost(of_ratio) for of_ratio in zip(*costs, strict=True)))


def _averaged_cost(costs: Sequence[StreamCost]) -> StreamCost:
    macs, payload = fmean(cost.macs for cost in costs), fmean(cost.payload_bytes for cost in costs)
    seconds = [cost.seconds for cost in costs if cost.seconds is not None]  # of all seeds or of none
    return StreamCost(costs[0].negatives_per_positive, macs, payload, fmean(seconds) if seconds else None)


def choose_threshold(answers: Answers, allowed: float) -> float:
    """Return the highest threshold that loses at most this share of the positives."""
    losable = torch.where(answers.early == answers.background, answers.scores, inf)[answers.positive].sort().values
    threshold = float(losable[int(allowed * len(losable) + 1e-9)])
    return threshold if threshold < inf else float(answers.scores.max()) + 1.0  # an exit may answer every sample


def measured(
    answers: Answers, costs: Costs, threshold: float, seconds: Sequence[float] | None = None
) -> dict[str, Any]:
    """Return what a `Point` says about one threshold on one data set.

    Args:
        seconds: a sample's time in the first network and in the rest; None if they were not measured.
    """
    stopped, ended, positive = answers.stopped(threshold), answers.ended(threshold), answers.positive
    given = torch.where(ended, answers.early, answers.final)
    return {
        "lost": metrics.positive_lost_rate(stopped, positive),
        "early_stopping": metrics.early_stopping(stopped, positive),
        "accuracy": metrics.accuracy(given, answers.labels),
        "accuracy_open": metrics.accuracy(answers.final, answers.labels),
        "costs": tuple(_stream_cost(~ended, positive, costs, seconds, ratio) for ratio in RATIOS),
    }


def _stream_cost(
    goes_on: Tensor, positive: Tensor, costs: Costs, seconds: Sequence[float] | None, ratio: int
) -> StreamCost:
    share = mean_at(goes_on, positive, 1 / (1 + ratio))
    return StreamCost(
        negatives_per_positive=ratio,
        macs=costs.first_macs + share * costs.rest_macs,
        payload_bytes=costs.first_bytes + share * costs.rest_bytes,
        seconds=None if seconds is None else seconds[0] + share * sum(seconds[1:]),
    )
