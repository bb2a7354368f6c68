"""exit_stages against a loop over samples."""

import random

import pytest
import torch

from penstock.gating.cascade import exit_stages, is_stopped


def one_by_one(gate_logits, thresholds, active, samples):
    stages = []
    for n in range(samples):
        stops = [i for i in active if gate_logits[i][n].item() < thresholds[i]]
        stages.append(min(stops) + 1 if stops else len(gate_logits) + 1)
    return stages


@pytest.mark.parametrize("seed", range(5))
def test_the_first_active_gate_that_stops_a_sample_decides(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    logits = [None if i == 1 else torch.randn(40) for i in range(4)]
    thresholds = [None if i == 1 else random.gauss(-0.5, 0.5) for i in range(4)]
    for active in ([0, 2, 3], [2], [], [3, 0]):
        found = exit_stages(logits, thresholds, samples=40, active=active)
        assert found.dtype == torch.int64
        assert found.tolist() == one_by_one(logits, thresholds, active, 40)
    assert torch.equal(
        exit_stages(logits, thresholds, samples=40), exit_stages(logits, thresholds, samples=40, active=[0, 2, 3])
    )


def test_without_gates_every_sample_exits_at_the_last_stage():
    assert exit_stages([], [], samples=2).tolist() == [1, 1]
    assert exit_stages([None], [None], samples=2).tolist() == [2, 2]


def test_a_sample_at_the_threshold_passes():
    logit = torch.tensor([0.1])  # its float64 is above 0.1
    assert is_stopped(logit, float(logit)).tolist() == [False]
    assert is_stopped(logit, 0.11).tolist() == [True]
    assert is_stopped(torch.tensor([-1e30]), float("-inf")).tolist() == [False]
