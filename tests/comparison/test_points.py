"""Thresholds against a search through all of them; answers and costs against a walk from sample to sample."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.comparison.points import RATIOS, Answers, Costs, Point, averaged, choose_threshold, measured

COSTS = Costs(first_macs=100, rest_macs=900, first_bytes=3, rest_bytes=40)


def drawn(seed, samples=80, exits=False, background=1):
    """Return random answers, with equal scores among them; an exit also has labels of its own."""
    generator = torch.Generator().manual_seed(seed)
    labels, final, early = torch.randint(0, 4, (3, samples), generator=generator)
    scores = torch.randint(0, 30, (samples,), generator=generator).double() / 10
    labels[:2] = torch.tensor([0, background])
    return Answers(labels, final, early if exits else torch.full_like(early, background), scores, background)


def walked(answers, threshold, seconds):
    """Compute the same as `measured`, one sample at a time."""
    rows = []
    for label, final, early, score in zip(
        *(part.tolist() for part in (answers.labels, answers.final, answers.early, answers.scores)), strict=True
    ):
        macs, payload, time, given = 100, 3, seconds[0], early
        if score >= threshold:
            macs, payload, time, given = 1000, 43, seconds[0] + seconds[1], final
        stopped = score < threshold and early == answers.background
        rows.append((label != answers.background, stopped, given == label, final == label, macs, payload, time))
    positives, negatives = [row for row in rows if row[0]], [row for row in rows if not row[0]]

    def mean(of, column):
        return sum(row[column] for row in of) / len(of)

    def at(column, ratio):
        return (mean(positives, column) + ratio * mean(negatives, column)) / (1 + ratio)

    return {
        "lost": mean(positives, 1),
        "early_stopping": mean(negatives, 1),
        "accuracy": mean(rows, 2),
        "accuracy_open": mean(rows, 3),
        "costs": [(ratio, at(4, ratio), at(5, ratio), at(6, ratio)) for ratio in (9, 99)],
    }


@pytest.mark.parametrize("exits", [False, True])
@pytest.mark.parametrize("threshold", [-1.0, 0.7, 1.5, 10.0])
def test_what_is_measured_is_what_a_walk_through_the_samples_finds(exits, threshold):
    answers, seconds = drawn(5, exits=exits), (0.25, 2.0)
    found, expected = measured(answers, COSTS, threshold, seconds), walked(answers, threshold, seconds)
    for cost, row in zip(found.pop("costs"), expected.pop("costs"), strict=True):
        assert (cost.negatives_per_positive, cost.macs, cost.payload_bytes, cost.seconds) == pytest.approx(row)
    assert found == pytest.approx(expected)


def test_a_positive_that_leaves_with_its_label_is_answered_and_saves_its_macs():
    labels = torch.tensor([0, 2, 2, 2])
    answers = Answers(labels, final=labels, early=torch.tensor([0, 2, 0, 1]), scores=torch.zeros(4), background=0)
    found = measured(answers, COSTS, 1.0)
    assert (found["lost"], found["early_stopping"], found["accuracy"]) == (pytest.approx(1 / 3), 1.0, 0.5)
    assert [cost.macs for cost in found["costs"]] == [100, 100]
    assert found["costs"][0].seconds is None


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.001, 0.9), st.booleans())
def test_a_threshold_is_the_highest_that_loses_no_more_than_allowed(seed, allowed, exits):
    answers = drawn(seed, exits=exits)
    chosen = choose_threshold(answers, allowed)
    candidates = [*answers.scores.tolist(), answers.scores.max().item() + 1.0]
    lost = {candidate: walked(answers, candidate, (0, 0))["lost"] for candidate in candidates}
    assert chosen == max(candidate for candidate in candidates if lost[candidate] <= allowed + 1e-9)


@given(st.integers(0, 10_000), st.floats(0.001, 0.9), st.floats(0.001, 0.9), st.booleans())
def test_a_lower_permitted_loss_never_stops_more(seed, one, other, exits):
    answers, on = drawn(seed, exits=exits), drawn(seed + 1, exits=exits)
    low, high = (on.stopped(choose_threshold(answers, allowed)) for allowed in sorted((one, other)))
    assert not (low & ~high).any()


def test_a_share_that_is_a_whole_number_of_positives_may_be_lost():
    scores, labels = torch.arange(100.0), torch.ones(100, dtype=torch.long)
    answers = Answers(labels, labels, torch.zeros_like(labels), scores, background=0)
    assert [choose_threshold(answers, share) for share in (0.005, 0.01, 0.07, 0.29)] == [0.0, 1.0, 7.0, 29.0]


def test_answers_survive_json_to_the_last_bit():
    answers = drawn(3, exits=True)
    again = Answers.from_json(answers.to_json())
    assert again.background == answers.background and again.scores.dtype == torch.double
    for name in ("labels", "final", "early", "scores"):
        assert torch.equal(getattr(again, name), getattr(answers, name))


def test_the_average_of_seeds_is_that_of_each_number():
    points = [Point("gated", seed, 0.02, 1.0, **measured(drawn(seed), COSTS, 1.0, (1.0, 1.0))) for seed in range(3)]
    mean = averaged(points)
    assert mean.accuracy == pytest.approx(sum(point.accuracy for point in points) / 3)
    assert mean.costs[1].macs == pytest.approx(sum(point.costs[1].macs for point in points) / 3)
    assert mean.costs[0].seconds == pytest.approx(sum(point.costs[0].seconds for point in points) / 3)
    assert [cost.negatives_per_positive for cost in mean.costs] == list(RATIOS)
