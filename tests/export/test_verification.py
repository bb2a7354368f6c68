"""How much worse an exported network may decide."""

import pytest

from penstock.export.verification import Decisions, largest_loss

BEFORE = Decisions(accuracy=0.9, early_stopping=0.8, positive_lost_rate=0.01)


@pytest.mark.parametrize(
    ("after", "permitted", "loss", "name"),
    [
        (Decisions(0.88, 0.8, 0.01), 0, 0.02, "accuracy"),
        (Decisions(0.95, 0.77, 0.01), 0, 0.03, "early stopping"),
        (Decisions(0.9, 0.81, 0.025), 0, 0.015, "positives"),
        (Decisions(0.9, 0.81, 0.025), 0.03, 0, "accuracy"),  # what thresholds were chosen to lose is no defect
        (Decisions(0.9, 0.81, 0.045), 0.03, 0.015, "positives"),
        (Decisions(0.9, 0.81, 0.02), 0.001, 0.01, "positives"),  # nor what was lost before
    ],
)
def test_the_worst_respect_counts(after, permitted, loss, name):
    assert largest_loss(BEFORE, after, permitted) == (pytest.approx(loss, abs=1e-12), name)
