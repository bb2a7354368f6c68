"""Share the permitted loss among the gates of a cascade: one path along which all thresholds rise together.

A cascade has one guarantee and a threshold per gate, so the thresholds are functions of one number, a level: at level u
the i-th gate stops the share ``weights[i] · u`` of some positives. Each sample has one level at which the cascade first
stops it, that of its weakest gate. In terms of levels, a cascade is a single gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

TYPICAL_LOSSES = (0.005, 0.01, 0.02, 0.05)
"""Losses at which paths are compared; independent of the loss asked for, so that one path serves all of them."""


@dataclass(frozen=True)
class Path:
    """Thresholds of a cascade as increasing functions of one level.

    Attributes:
        knots: of each gate, the sorted scores of the positives that define the path.
        weights: of each gate, its share of the loss.
    """

    knots: tuple[np.ndarray, ...]
    weights: tuple[float, ...]

    def levels(self, scores: np.ndarray) -> np.ndarray:
        """Return the level at which each sample is first stopped: (n, gates) -> (n,)."""
        return _first_stops(_shares_below(scores, self.knots), np.array([self.weights]))[0]

    def thresholds(self, levels: np.ndarray | float) -> np.ndarray:
        """Return each gate's threshold at each level: (n,) -> (n, gates)."""
        return _thresholds(np.asarray(levels)[None], self.knots, np.array([self.weights]))[0]


@dataclass(frozen=True)
class SingleGatePath:
    """The path of one gate: its score is its level."""

    def levels(self, scores: np.ndarray) -> np.ndarray:
        """Return the level at which each sample is first stopped: (n, 1) -> (n,)."""
        return scores[:, 0]

    def thresholds(self, levels: np.ndarray | float) -> np.ndarray:
        """Return the gate's threshold at each level: (n,) -> (n, 1)."""
        return np.asarray(levels)[..., None]


def best_threshold_path(positives: np.ndarray, price: Callable[[np.ndarray], np.ndarray]) -> Path | SingleGatePath:
    """Return the path with the lowest total price at `TYPICAL_LOSSES`.

    Args:
        positives: (n, gates), scores of the positives on which losses are counted.
        price: the price of each choice of thresholds, (n, gates) -> (n,).
    """
    gates = positives.shape[1]
    if gates == 1:
        return SingleGatePath()
    knots = tuple(np.unique(positives[:, i]) for i in range(gates))
    ways = _candidate_weights(gates)
    levels = np.quantile(_first_stops(_shares_below(positives, knots), ways), TYPICAL_LOSSES, axis=1).T
    totals = [float(price(thresholds).sum()) for thresholds in _thresholds(levels, knots, ways)]
    return Path(knots, tuple(ways[int(np.argmin(totals))].tolist()))


def _candidate_weights(gates: int) -> np.ndarray:
    """Return candidate weights: equal, mostly or only one gate, and random ones."""
    random = np.random.default_rng(0).dirichlet(np.ones(gates), size=100)
    only = np.eye(gates)
    mostly = 0.9 * only + 0.1 / gates
    return np.maximum(np.concatenate([np.full((1, gates), 1 / gates), mostly, only, random]), 1e-3)  # (ways, gates)


def _shares_below(scores: np.ndarray, knots: Sequence[np.ndarray]) -> np.ndarray:
    """Return the share of each gate's knots below each score: (n, gates) -> (n, gates)."""
    return np.stack([_quantile_of(scores[:, i], of_gate) for i, of_gate in enumerate(knots)], axis=1)


def _first_stops(shares: np.ndarray, ways: np.ndarray) -> np.ndarray:
    """Return the level at which the first gate stops each sample: (n, gates), (ways, gates) -> (ways, n)."""
    first = shares[:, 0] / ways[:, :1]
    for gate in range(1, shares.shape[1]):
        np.minimum(first, shares[:, gate] / ways[:, gate : gate + 1], out=first)
    return first


def _thresholds(levels: np.ndarray, knots: Sequence[np.ndarray], ways: np.ndarray) -> np.ndarray:
    """Return each gate's threshold at each level: (ways, ...), (ways, gates) -> (ways, ..., gates)."""
    shares = levels[..., None] * ways.reshape(len(ways), *(1,) * (levels.ndim - 1), -1)
    return np.stack([_score_at(shares[..., i], of_gate) for i, of_gate in enumerate(knots)], axis=-1)


def _quantile_of(score: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the share of knots below a score: strictly increasing, also beyond the knots."""
    shares = (np.arange(len(knots)) + 0.5) / len(knots)
    inside = np.interp(score, knots, shares)
    below = shares[0] * np.exp(np.minimum(score - knots[0], 0))
    return np.where(score < knots[0], below, np.where(score > knots[-1], shares[-1] + score - knots[-1], inside))


def _score_at(share: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Invert `_quantile_of`."""
    shares = (np.arange(len(knots)) + 0.5) / len(knots)
    inside = np.interp(share, shares, knots)
    below = knots[0] + np.log(np.minimum(share / shares[0], 1))
    return np.where(share < shares[0], below, np.where(share > shares[-1], knots[-1] + share - shares[-1], inside))
