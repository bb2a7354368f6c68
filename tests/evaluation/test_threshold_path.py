"""A loss that gates share costs no more than one that a single gate may have to itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.evaluation.threshold_path import TYPICAL_LOSSES, best_threshold_path


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), gates=st.integers(2, 5))
def test_sharing_is_no_worse_than_one_gate_alone(seed, gates):
    rng = np.random.default_rng(seed)
    skill = rng.uniform(0, 3, gates)
    positives, negatives = (rng.normal(size=(n, gates)) + sign * skill for n, sign in ((400, 1), (600, -1)))

    def price(thresholds):
        """Each stage costs 1 for each negative that reaches it."""
        passed = negatives >= thresholds[:, None]  # (choices, negatives, gates)
        return np.logical_and.accumulate(passed, axis=2).sum(axis=(1, 2))

    path = best_threshold_path(positives, price)
    shared = price(path.thresholds(np.quantile(path.levels(positives), TYPICAL_LOSSES))).sum()
    for gate in range(gates):
        alone = np.full((len(TYPICAL_LOSSES), gates), -np.inf)
        alone[:, gate] = np.quantile(positives[:, gate], TYPICAL_LOSSES)
        # the others' share is a thousandth rather than nothing, and quantiles lie between samples
        assert shared <= price(alone).sum() * 1.02 + len(TYPICAL_LOSSES) * gates


@pytest.mark.parametrize("better", [0, 1, 2])
def test_where_one_gate_knows_everything_it_has_the_loss_to_itself(better):
    rng = np.random.default_rng(better)
    positives, negatives = rng.normal(size=(500, 3)), rng.normal(size=(500, 3))
    negatives[:, better] = positives[:, better] - 1

    def price(thresholds):
        return (negatives >= thresholds[:, None]).all(2).sum(1)

    weights = best_threshold_path(positives, price).weights
    assert np.argmax(weights) == better
    assert weights[better] > 0.8
