"""An audit tells without bias what is lost, and its interval holds as often as it says."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeliveryError
from penstock.runtime.islands.ops.shadow_audit import ShadowAudit, ShadowTally


def field(seed, *, share, lost_rate, later=0.0, dropped=0.0, positives=400, negatives=3000) -> ShadowAudit:
    """A day in the field: a gate, and another behind it; of what either stops some is let through by chance.

    Of what passes the first one, some is dropped on its way to the next.
    """
    audit, draw = ShadowAudit(share, random.Random(seed)), random.Random(-seed - 1)
    for i in range(positives + negatives):
        positive = i < positives
        stopped_here = draw.random() < (lost_rate if positive else 0.9)
        stopped_later = draw.random() < (later if positive else later and 0.5)
        if not stopped_here and draw.random() < dropped:
            audit.dropped += 1
            continue
        audit.answered += not stopped_here
        if stopped_here or stopped_later:
            stratum = audit.here if stopped_here else audit.later
            if audit.draw(stratum):
                stratum.answered += 1
                stratum.positive += positive
        else:
            audit.passed += positive
    return audit


@pytest.mark.parametrize(
    ("share", "lost_rate", "later", "dropped"),
    [
        (0.05, 0.1, 0, 0),
        (0.2, 0.02, 0, 0),
        (1.0, 0.05, 0, 0),
        (0.1, 0.1, 0.5, 0),
        (0.5, 0.05, 0.8, 0),
        (0.2, 0.1, 0, 0.5),
        (0.2, 0.1, 0.5, 0.7),
        (0.5, 0.3, 0, 0.9),
    ],
)
def test_the_estimate_has_no_bias_and_the_interval_holds(share, lost_rate, later, dropped):
    days = [field(seed, share=share, lost_rate=lost_rate, later=later, dropped=dropped) for seed in range(300)]
    found = [day.lost_rate() for day in days]
    lost = sum(day.here.positive * day.here.seen / day.here.answered for day in days) / len(days)
    assert lost == pytest.approx(400 * lost_rate, rel=0.1)
    assert sum(interval.estimate for interval in found) / len(found) == pytest.approx(lost_rate, rel=0.15)
    if share < 1:
        assert sum(interval.low <= lost_rate <= interval.high for interval in found) / len(found) >= 0.93
    assert all(interval.low <= interval.estimate <= interval.high for interval in found)


def test_before_anything_is_known_nothing_is_said():
    audit = ShadowAudit(0.5, random.Random(0))
    assert audit.lost_rate() is None
    audit.here.seen, audit.here.answered = 1000, 10
    assert audit.lost_rate() == (0, 0, 1), "no positive seen at all: anything is possible"
    audit.passed = 100
    assert audit.lost_rate().high == pytest.approx(368.888 / 468.888, rel=1e-4)
    audit.here.positive, audit.later.seen = 1, 50
    low, estimate, high = audit.lost_rate()
    assert low < estimate < high and estimate == pytest.approx(100 / 200), (
        "of what was stopped later nothing is known yet"
    )
    assert low == pytest.approx((0.0126 * 100) / (0.0126 * 100 + 150), rel=0.02), "all of it may have been positive"


@given(seen=st.integers(0, 400), answered=st.integers(0, 400), positive=st.integers(0, 400))
def test_what_is_certain_is_not_doubted(seen, answered, positive):
    answered = min(answered, seen)
    positive = min(positive, answered)
    low, estimate, high = ShadowTally(seen, answered, positive).positives(0.95)
    assert positive <= low <= estimate <= high <= positive + seen - answered or not answered
    if answered == seen:
        assert low == estimate == high == positive


def test_a_share_that_is_none_is_refused():
    for share in (-0.1, 1.1):
        with pytest.raises(DeliveryError, match="shadow_rate"):
            ShadowAudit(share)
