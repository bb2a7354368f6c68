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
    steady = DriftDetector(window=500)
    for _ in range(1000):
        steady.add(True)
    assert not steady.detected
    turned = DriftDetector(window=500)
    for i in range(999):
        turned.add(i < 500)
    assert not turned.detected, "the latest window is not full"
    turned.add(False)
    assert turned.detected
