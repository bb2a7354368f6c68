"""Say in one sentence which contestant wins on this data, or that it cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING

from penstock.comparison.config import YOURS
from penstock.comparison.points import Point, averaged
from penstock.gating.tables import count, percent

if TYPE_CHECKING:
    from penstock.comparison.compare import Comparison

LOST, MARGIN = 0.02, 0.005
"""The operating point of the verdict, and the accuracy that a winner may have less than yours."""
LOSSES_NEEDED = 2
"""Lost positives that a permitted loss must amount to: 100 positives at 2 %."""


def verdict(comparison: Comparison) -> str:
    """Return the sentence: the fewest MACs a sample at 1:9 among those about as accurate as yours."""
    allowed = min(comparison.lost, key=lambda share: abs(share - LOST))
    at = f"at 1:9 and {100 * allowed:g} % of the positives lost"
    needed = ceil(LOSSES_NEEDED / allowed)
    if comparison.fewest_positives < needed:
        return (
            f"No clear winner: to tell {at}, validation and test need at least {needed} positives each, got "
            f"{comparison.fewest_positives}."
        )
    means = {name: averaged(comparison.of(name, allowed)) for name in comparison.contestants}
    accurate = [name for name in means if means[name].accuracy >= means[YOURS].accuracy - MARGIN]
    best, *others = sorted(accurate, key=lambda name: means[name].costs[0].macs)
    rule = f"within {100 * MARGIN:g} points of yours' accuracy"
    if not others:
        return f"Winner on this data: {best}; {at}, no other is {rule}."
    difference, spread = _difference(comparison.of(best, allowed), comparison.of(others[0], allowed))
    if comparison.seeds > 1 and difference <= spread:
        return (
            f"No clear winner: {at}, {best} and {others[0]} are {count(difference)} MACs a sample apart, and that "
            f"varies by {count(spread)} over the seeds."
        )
    macs = {name: count(means[name].costs[0].macs) for name in (best, others[0])}
    return (
        f"Winner on this data: {best}, {at} with {macs[best]} MACs a sample, the fewest of those {rule} (next: "
        f"{others[0]}, {macs[others[0]]}). It lost {percent(means[best].lost)} of the test positives."
        + ("" if comparison.seeds > 1 else " One seed does not tell how much that varies: try --seeds 3.")
    )


def _difference(best: Sequence[Point], other: Sequence[Point]) -> tuple[float, float]:
    """Return how many MACs more the other takes, and how far apart that is between the seeds."""
    by_seed = [b.costs[0].macs - a.costs[0].macs for a, b in zip(best, other, strict=True)]
    return fmean(by_seed), max(by_seed) - min(by_seed)
