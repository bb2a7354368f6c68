"""The sentence at the end, on invented figures."""

import pytest

from penstock.comparison.compare import Comparison
from penstock.comparison.points import Point, StreamCost


def comparison(macs, accuracy=None, *, positives=500, lost=(0.02,)):
    """Return a comparison: contestant -> MACs a sample at 1:9 of each seed, and its accuracy if not 0.9."""
    points = [
        Point(name, seed, allowed, 0.0, 0.015, 0.9, (accuracy or {}).get(name, 0.9), 0.92, (cost, cost))
        for name, of_seeds in macs.items()
        for seed, number in enumerate(of_seeds)
        for allowed in lost
        for cost in [StreamCost(9, number, 10.0, None)]
    ]
    return Comparison(tuple(points), lost, 1000, positives, positives, {}, {})


def test_the_cheapest_of_the_accurate_wins():
    macs = {"yours": [100, 100], "gated": [50, 52], "two networks": [30, 31]}
    said = comparison(macs).verdict
    assert said.startswith("Winner on this data: two networks, at 1:9 and 2 % of the positives lost with 30.5 MACs")
    assert "within 0.5 points of yours' accuracy (next: gated, 51). It lost 1.5 % of the test positives." in said
    assert "Winner on this data: gated" in comparison(macs, {"two networks": 0.894}).verdict
    assert "Winner on this data: two networks" in comparison(macs, {"two networks": 0.896}).verdict


def test_yours_wins_if_no_other_is_accurate():
    said = comparison({"yours": [100, 100], "gated": [50, 52]}, {"gated": 0.8}).verdict
    assert said == (
        "Winner on this data: yours; at 1:9 and 2 % of the positives lost, no other is within 0.5 points of yours' "
        "accuracy."
    )


@pytest.mark.parametrize(("two", "wins"), [([40, 30], True), ([45, 30], False), ([55, 30], False)])
def test_none_wins_if_seeds_differ_by_more(two, wins):
    said = comparison({"yours": [100, 100], "gated": [50, 50], "two networks": two}).verdict
    assert said.startswith("Winner" if wins else "No clear winner")
    if not wins:
        assert "MACs a sample apart, and that varies by" in said and "over the seeds" in said


def test_one_seed_wins_with_a_warning():
    assert comparison({"yours": [100], "gated": [50]}).verdict.endswith("try --seeds 3.")


def test_few_positives_tell_nothing():
    said = comparison({"yours": [100], "gated": [50]}, positives=99).verdict
    assert said.startswith("No clear winner") and "need at least 100 positives each, got 99" in said
    assert comparison({"yours": [100], "gated": [50]}, positives=100).verdict.startswith("Winner")


def test_the_loss_nearest_to_two_percent_counts():
    said = comparison({"yours": [100], "gated": [50]}, lost=(0.001, 0.05, 0.03)).verdict
    assert "at 1:9 and 3 % of the positives lost" in said
