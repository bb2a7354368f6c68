"""Each metric against a second, dumber implementation that walks through the samples one by one."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from penstock.evaluation import metrics

samples = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: {positive for _, positive, _ in rows} == {True, False}
)


@settings(deadline=None)
@given(samples)
def test_rates(rows):
    stopped, positive, mistaken = (torch.tensor(column) for column in zip(*rows, strict=True))
    negatives = [row for row in rows if not row[1]]
    positives = [row for row in rows if row[1]]
    assert metrics.stop_rate(stopped) == pytest.approx(sum(row[0] for row in rows) / len(rows))
    assert metrics.early_stopping(stopped, positive) == pytest.approx(sum(row[0] for row in negatives) / len(negatives))
    passing = sum(not row[0] for row in negatives)
    assert metrics.negative_pass_through_rate(stopped, positive) == pytest.approx(passing / len(negatives))
    assert metrics.positive_lost_rate(stopped, positive) == pytest.approx(
        sum(row[0] for row in positives) / len(positives)
    )
    corrected = sum(1 for row in negatives if row[0] and row[2])
    assert metrics.negative_correction_rate(stopped, positive, mistaken) == pytest.approx(corrected / len(negatives))
    # and how they hang together
    share = len(negatives) / len(rows)
    whole = share * metrics.early_stopping(stopped, positive) + (1 - share) * metrics.positive_lost_rate(
        stopped, positive
    )
    assert metrics.stop_rate(stopped) == pytest.approx(whole)


scored = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=30).filter(
    lambda rows: {positive for _, positive in rows} == {True, False}
)


@settings(deadline=None)
@given(scored)
def test_auc_is_the_chance_that_a_positive_outscores_a_negative(rows):
    scores, positive = torch.tensor([float(s) for s, _ in rows]), torch.tensor([p for _, p in rows])
    pairs = [(a, b) for a, pa in rows for b, pb in rows if pa and not pb]
    by_hand = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)
    assert metrics.auc(scores, positive) == pytest.approx(by_hand)
    assert metrics.auc(scores, positive) == pytest.approx(roc_auc_score(positive.numpy(), scores.numpy()))


@settings(deadline=None)
@given(scored)
def test_roc_against_scikit_learn(rows):
    scores, positive = torch.tensor([float(s) for s, _ in rows]), torch.tensor([p for _, p in rows])
    false, true = metrics.roc(scores, positive)
    expected_false, expected_true, _ = roc_curve(positive.numpy(), scores.numpy(), drop_intermediate=False)
    assert false.tolist() == pytest.approx(expected_false.tolist())
    assert true.tolist() == pytest.approx(expected_true.tolist())


@settings(deadline=None)
@given(scored, st.sampled_from([0.0, 0.1, 0.25, 0.5]))
def test_pass_through_at_a_permitted_loss(rows, permitted):
    scores, positive = torch.tensor([float(s) for s, _ in rows]), torch.tensor([p for _, p in rows])
    best = 1.0
    for threshold in range(10):
        stopped = scores < threshold
        if metrics.positive_lost_rate(stopped, positive) <= permitted:
            best = min(best, metrics.negative_pass_through_rate(stopped, positive))
    assert metrics.pass_through_at(scores, positive, permitted) == pytest.approx(best)
