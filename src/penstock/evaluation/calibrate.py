"""Choose thresholds that keep a promise: with confidence 1 − δ, at most a share r of the positives is lost.

One gate. Thresholds are tried from the lowest up, each with an exact binomial test of "more than r is lost" at level δ,
until the first one fails (a fixed sequence, so no price is paid for trying many). As each threshold loses at least as
many positives as the one before, the last that passes is the score of the (k+1)-th weakest positive, where k is the
largest number of losses that the test still accepts.

A threshold that passes is then lowered for free: to the middle between itself and the highest held-out negative that it
stops, which stops the same of them, loses no more positives, and so keeps the promise too. Where a gate separates the
two kinds, that is most of the way.

A cascade. All thresholds move together along one path (`sharing`), fixed before the test on data of its own, so that
each sample has one level at which the cascade would first stop it. On levels a cascade is one gate.
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

DECIMALS = 4  # of a threshold; it is rounded down, which keeps the promise and outlives rounding of the logits
SHAPING_SHARE = 0.3  # of the positives, which fix the path of a cascade and take no part in the test


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
        active: the layers whose gates are used; the others are opened for good.
        events: for each sample the event it belongs to (a word spoken, a fall, a recording); an event counts as one
            positive and is lost when all of its positive samples are stopped.

    A cascade sets 30 % of the positives aside, to share what may be lost among its gates.
    """
    _check_promise(max_positive_loss, confidence)
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
        gates: each gate's logits, (n,), whoever computed them; None without a gate.
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
    """Return a lower threshold that stops the same negatives, halfway to the highest of them.

    >>> lowered(3.0, np.array([-5.0, -1.0, 4.0])), lowered(3.0, np.array([4.0]))
    (1.0, 3.0)
    """
    stopped = negatives[negatives < threshold]
    return (threshold + float(stopped.max())) / 2 if len(stopped) else threshold


def rounded_down(threshold: float) -> float:
    """Return a threshold that no positive at its own level misses by rounding.

    >>> rounded_down(0.12345678), rounded_down(-0.12345678)
    (0.1234, -0.1235)
    """
    return math.floor(threshold * 10**DECIMALS) / 10**DECIMALS


def weakest_allowed(levels: np.ndarray, max_positive_loss: float, confidence: float) -> tuple[float, int]:
    """Return the highest level below which the promise allows positives to be lost, and how many it allows.

    Args:
        levels: (n,), the level at which each positive would be lost: it passes any threshold up to its own level.
    """
    allowed = allowed_losses(len(levels), max_positive_loss, confidence)
    return float(np.sort(levels)[allowed]), allowed


def allowed_losses(n: int, max_positive_loss: float, confidence: float) -> int:
    """Return how many of ``n`` positives may be lost in the test.

    >>> [allowed_losses(n, 0.01, 0.95) for n in (299, 473, 1000)]
    [0, 1, 4]
    """
    k = bisect_right(range(n), 1 - confidence, key=lambda lost: binomial_cdf(lost, n, max_positive_loss)) - 1
    if k < 0:
        _check_enough(n, False, max_positive_loss, confidence)
        raise CalibrationError(f"{n} positives are too few by the last digit: one more is needed.")
    return k


def needed_positives(max_positive_loss: float, confidence: float) -> int:
    """Return how many positives a promise takes, if none of them is lost.

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
    """Return which positives are left for the test, and the path."""
    if len(chosen) == 1:
        return positive, SingleGatePath()
    events = np.unique(event[positive])
    picked = np.random.default_rng(0).permutation(events)[: _shaping(len(events))]
    shaping = positive & np.isin(event, picked)
    negatives, macs = scores[~positive], _macs_of_stops(net, chosen)
    path = best_threshold_path(scores[shaping], lambda thresholds: _mean_macs(macs, negatives, thresholds))
    return positive & ~shaping, path


def _macs_of_stops(net: GatedNetwork, chosen: list[int]) -> np.ndarray:
    """Return the MACs of a sample that each chosen gate stops, and last of one that none does."""
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
        raise CalibrationError("events came with a DataLoader that shuffles: give data in the order of the events.")
    event = np.asarray(events)
    if event.shape != (samples,):
        raise CalibrationError(
            f"events of shape {event.shape} came for {samples} samples: give one event for each sample."
        )
    return event


def _of_events(values: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Return the highest value of each event."""
    _, number = np.unique(event, return_inverse=True)
    highest = np.full(number.max() + 1, -np.inf)
    np.maximum.at(highest, number, values)
    return highest


def _check_enough(positives: int, is_cascade: bool, max_positive_loss: float, confidence: float) -> None:
    """Refuse what cannot carry the promise even if no positive is lost, a cascade's shaping share included."""
    needed = needed_positives(max_positive_loss, confidence)
    if is_cascade:
        needed = next(n for n in itertools.count(needed) if n - _shaping(n) >= needed)
    if positives < needed:
        share = f" ({SHAPING_SHARE:.0%} of them to share the loss among the gates)" if is_cascade else ""
        raise CalibrationError(
            f"{positives} positives are too few to promise that at most {max_positive_loss:.2%} are lost with "
            f"{confidence:.1%} confidence: at least {needed} are needed{share}. Bring more, or allow a larger loss or "
            "a lower confidence."
        )


def _shaping(positives: int) -> int:
    """Return how many positives fix the path of a cascade."""
    return math.ceil(SHAPING_SHARE * positives)


def _chosen(net: GatedNetwork, active: Collection[int] | None) -> list[int]:
    chosen = sorted(net.active(active))
    if not chosen:
        raise CalibrationError("there is no gate to calibrate: this network has none, or none is active.")
    return chosen


def _check_promise(max_positive_loss: float, confidence: float) -> None:
    if not 0 < max_positive_loss < 1:
        raise CalibrationError(
            f"max_positive_loss = {max_positive_loss} is not possible: it is a share between 0 and 1, such as 0.01 for "
            "1 %."
        )
    if not 0 < confidence < 1:
        raise CalibrationError(f"confidence = {confidence} is not possible: it lies between 0 and 1, such as 0.95.")
