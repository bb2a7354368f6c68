"""Drift is detected, chance is not."""

import random

from penstock.runtime.islands.ops.drift import DriftDetector


def test_drift_is_flagged_and_chance_is_not():
    flags = []
    for then in (0.9, 0.9, 0.7):
        for seed in range(20):
            draw, drift = random.Random(seed), DriftDetector(window=500)
            for i in range(1500):
                drift.add(draw.random() < (0.9 if i < 700 else then))
            flags.append(drift.detected)
    assert not any(flags[:40]) and sum(flags[40:]) >= 10
    fresh = DriftDetector(window=500)
    for _ in range(999):
        fresh.add(True)
    assert fresh.shares is None and not fresh.detected
    fresh.add(True)
    assert fresh.shares == (1, 1) and not fresh.detected
