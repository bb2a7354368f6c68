"""Choose thresholds with a guarantee: with confidence 1 − δ, at most a share r of the positives is lost.

One gate. Thresholds are tested from the lowest up, each with an exact binomial test of "more than r is lost" at level
δ, until the first one fails (fixed-sequence testing, so multiple tests need no correction). As each threshold loses at
least as many positives as the one before, the last that passes is the score of the (k+1)-th weakest positive, where k
is the largest number of losses that the test accepts.

That threshold is then lowered to the middle between itself and the highest held-out negative that it stops: it stops
the same negatives and loses no more positives, so the guarantee holds.

A cascade. All thresholds move together along one path (`threshold_path`), fixed before the test on data of its own, so
that each sample has one level at which the cascade would first stop it. In terms of levels, a cascade is one gate.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from penstock.datasets.loading import Data
from penstock.errors import CalibrationError
from penstock.evaluation.cost import gated_cost
from penstock.evaluation.outputs import check_both_kinds, collect_outputs
from penstock.evaluation.threshold_path import Path, SingleGatePath, best_threshold_path
from penstock.gating.cascade import exit_stages
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.intervals import binomial_cdf, binomial_upper_bound

DECIMALS = 4  # of a threshold; rounded down, so that the guarantee holds in spite of rounding errors of the logits
PATH_SHARE = 0.3  # of the positives: they fix the path of a cascade and are not part of the test


def calibrate(
    net: GatedNetwork,
    data: Data,
    *,
    max_positive_loss: float = 0.01,
    confidence: float = 0.95,
    active: Collection[int] | None = None,
    events: Sequence[int] | Tensor | None = None,
    batch_size: int = 256,
) -> Guarantee:
    """Set the network's thresholds so that the whole cascade loses few positives; return and store its guarantee.

    The guarantee holds for positives drawn like those of ``data``, which the network has not been trained on. Windows
    that overlap are not drawn independently: name their events.

    Args:
        data: held-out data, a DataLoader, a Dataset or a pair of tensors (x, y), in a fixed order.
        max_positive_loss: r, the share of positives that may be lost.
        confidence: 1 − δ.
        active: the layers whose gates are used; the others are opened.
        events: for each sample the event it belongs to (a word spoken, a fall, a recording); an event counts as one
            positive and is lost when all of its positive samples are stopped.

    For a cascade, 30 % of the positives are set aside to share the loss among its gates.
    """
    _check_rates(max_positive_loss, confidence)
    _chosen(net, active)
    labels, _, gates = collect_outputs(net, data, batch_size=batch_size, progress="calibrating")
    thresholds, guarantee = choose_thresholds(
        net,
        labels,
        gates,
        max_positive_loss=max_positive_loss,
        confidence=confidence,
        active=active,
        event=_events(events, data, len(labels)),
    )
    net.thresholds = thresholds
    net.guarantee = guarantee
    return guarantee


def choose_thresholds(
    net: GatedNetwork,
    labels: Tensor,
    gates: Sequence[Tensor | None],
    *,
    max_positive_loss: float,
    confidence: float,
    active: Collection[int] | None = None,
    event: np.ndarray | None = None,
) -> tuple[tuple[float | None, ...], Guarantee]:
    """Return thresholds and their guarantee, given each gate's logits of every sample; the network is unchanged.

    Args:
        labels: (n,).
        gates: each gate's logits, (n,), from any engine; None without a gate.
        event: (n,), as `calibrate` takes them; None: each sample is one.
    """
    chosen = _chosen(net, active)
    positive = net.positive(labels, chosen)
    check_both_kinds(positive, "calibrate")
    scores = np.stack([gates[i].double().numpy() for i in chosen], axis=1)  # type: ignore[union-attr]
    event = np.arange(len(labels)) if event is None else event
    _check_enough(len(np.unique(event[positive.numpy()])), len(chosen) > 1, max_positive_loss, confidence)
    testing, path = _path(net, chosen, scores, positive.numpy(), event)
    levels = _of_events(path.levels(scores[testing]), event[testing])
    level, allowed = weakest_allowed(levels, max_positive_loss, confidence)
    thresholds: list[float | None] = [None if layer.gate is None else -math.inf for layer in net.layers]
    negatives = scores[~positive.numpy()]
    for i, threshold, negative in zip(chosen, path.thresholds(level).tolist(), negatives.T, strict=True):
        thresholds[i] = rounded_down(lowered(threshold, negative))
    exits = exit_stages(gates, thresholds, samples=len(labels), active=chosen)
    passed = exits.numpy() > len(net.layers)
    survivors = _of_events(passed[testing].astype(float), event[testing])
    guarantee = Guarantee(
        positives=len(levels),
        lost=int((survivors == 0).sum()),
        bound=binomial_upper_bound(allowed, len(levels), confidence),
        max_positive_loss=max_positive_loss,
        confidence=confidence,
    )
    return tuple(thresholds), guarantee


def lowered(threshold: float, negatives: np.ndarray) -> float:
    """Return a threshold that stops the same negatives, halfway down to the highest of them.

    >>> lowered(3.0, np.array([-5.0, -1.0, 4.0])), lowered(3.0, np.array([4.0]))
    (1.0, 3.0)
    """
    stopped = negatives[negatives < threshold]
    return (threshold + float(stopped.max())) / 2 if len(stopped) else threshold


def rounded_down(threshold: float) -> float:
    """Round a threshold down, so that a positive exactly at the threshold still passes.

    >>> rounded_down(0.12345678), rounded_down(-0.12345678)
    (0.1234, -0.1235)
    """
    return math.floor(threshold * 10**DECIMALS) / 10**DECIMALS


def weakest_allowed(levels: np.ndarray, max_positive_loss: float, confidence: float) -> tuple[float, int]:
    """Return the highest level that the guarantee permits, and the number of positives that may be lost below it.

    Args:
        levels: (n,), the level at which each positive would be lost: it passes any threshold up to its own level.
    """
    allowed = allowed_losses(len(levels), max_positive_loss, confidence)
    return float(np.sort(levels)[allowed]), allowed


def allowed_losses(n: int, max_positive_loss: float, confidence: float) -> int:
    """Return the largest number of ``n`` positives that may be lost in the test.

    >>> [allowed_losses(n, 0.01, 0.95) for n in (299, 473, 1000)]
    [0, 1, 4]
    """
    k = bisect_right(range(n), 1 - confidence, key=lambda lost: binomial_cdf(lost, n, max_positive_loss)) - 1
    if k < 0:
        _check_enough(n, False, max_positive_loss, confidence)
        raise CalibrationError(f"expected at least {n + 1} positives, got {n}")
    return k


def needed_positives(max_positive_loss: float, confidence: float) -> int:
    """Return the number of positives that a guarantee needs if none of them is lost.

    >>> [needed_positives(r, 0.95) for r in (0.1, 0.05, 0.02, 0.01)]
    [29, 59, 149, 299]
    """
    return math.ceil(math.log(1 - confidence) / math.log1p(-max_positive_loss))


def _path(
    net: GatedNetwork,
    chosen: list[int],
    scores: np.ndarray,
    positive: np.ndarray,
    event: np.ndarray,
) -> tuple[np.ndarray, Path | SingleGatePath]:
    """Return which positives remain for the test, and the path."""
    if len(chosen) == 1:
        return positive, SingleGatePath()
    events = np.unique(event[positive])
    picked = np.random.default_rng(0).permutation(events)[: _path_positives(len(events))]
    shaping = positive & np.isin(event, picked)
    negatives, macs = scores[~positive], _macs_of_stops(net, chosen)
    path = best_threshold_path(scores[shaping], lambda thresholds: _mean_macs(macs, negatives, thresholds))
    return positive & ~shaping, path


def _macs_of_stops(net: GatedNetwork, chosen: list[int]) -> np.ndarray:
    """Return the MACs of a sample stopped at each chosen gate, and of one that passes them all."""
    return gated_cost(net, torch.tensor([*(i + 1 for i in chosen), len(net.stages)]), chosen).macs.numpy()


def _mean_macs(macs: np.ndarray, scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the mean MACs of samples at each choice of thresholds: (samples, gates), (n, gates) -> (n,)."""
    stops = scores < thresholds[:, None]
    first = np.where(stops.any(2), stops.argmax(2), scores.shape[1])
    return macs[first].mean(1)


def _events(events: Sequence[int] | Tensor | None, data: Data, samples: int) -> np.ndarray:
    if events is None:
        return np.arange(samples)
    if isinstance(data, DataLoader) and isinstance(data.sampler, RandomSampler):
        raise CalibrationError("events need data in a fixed order, got a DataLoader that shuffles")
    event = np.asarray(events)
    if event.shape != (samples,):
        raise CalibrationError(f"expected one event per sample, {samples} in all, got events of shape {event.shape}")
    return event


def _of_events(values: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Return the highest value of each event."""
    _, number = np.unique(event, return_inverse=True)
    highest = np.full(number.max() + 1, -np.inf)
    np.maximum.at(highest, number, values)
    return highest


def _check_enough(positives: int, is_cascade: bool, max_positive_loss: float, confidence: float) -> None:
    """Refuse too few positives for the guarantee, even if none is lost."""
    needed = needed_positives(max_positive_loss, confidence)
    if is_cascade:
        needed = next(n for n in itertools.count(needed) if n - _path_positives(n) >= needed)
    if positives < needed:
        share = f" ({PATH_SHARE:.0%} of them to share the loss among the gates)" if is_cascade else ""
        raise CalibrationError(
            f"{positives} positives are too few to guarantee a loss of at most {max_positive_loss:.2%} with "
            f"{confidence:.1%} confidence: at least {needed} are needed{share}. Add positives, or allow a larger loss "
            "or a lower confidence."
        )


def _path_positives(positives: int) -> int:
    """Return the number of positives that fix the path of a cascade."""
    return math.ceil(PATH_SHARE * positives)


def _chosen(net: GatedNetwork, active: Collection[int] | None) -> list[int]:
    chosen = sorted(net.active(active))
    if not chosen:
        raise CalibrationError("no gate to calibrate: the network has none, or none is active")
    return chosen


def _check_rates(max_positive_loss: float, confidence: float) -> None:
    if not 0 < max_positive_loss < 1:
        raise CalibrationError(f"max_positive_loss must be between 0 and 1 (0.01 is 1 %), got {max_positive_loss}")
    if not 0 < confidence < 1:
        raise CalibrationError(f"confidence must be between 0 and 1 (0.95 is 95 %), got {confidence}")
