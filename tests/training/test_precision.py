"""precision="auto": what is clearly faster, measured without a trace in the network or the random numbers."""

import copy
import time

import pytest
import torch

import penstock as ps
from helpers.small_task import network, quiet, task
from penstock.training.precision import bfloat16_is_faster


class Slow(torch.nn.Module):
    """Sleeps in one of the two precisions."""

    def __init__(self, bfloat16: bool):
        super().__init__()
        self.bfloat16, self.layer = bfloat16, torch.nn.Linear(6, 4)

    def forward(self, x):
        if torch.is_autocast_enabled("cpu") is self.bfloat16:
            time.sleep(0.02)
        return self.layer(x)


@pytest.mark.parametrize("slow", [True, False])
def test_the_faster_precision_wins(slow):
    net = ps.gate([Slow(slow), torch.nn.Linear(4, 3)], torch.zeros(2, 6))
    assert bfloat16_is_faster(net, torch.zeros(8, 6)) is not slow


def test_measuring_leaves_no_trace():
    net = network()
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    bfloat16_is_faster(net, task()[0][:32])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")
def test_only_auto_on_a_cpu_that_can_is_measured(monkeypatch):
    measured = []
    monkeypatch.setattr("penstock.training.fit.bfloat16_is_faster", lambda net, x: bool(measured.append(len(x))))
    for able in (False, True):
        monkeypatch.setattr(ps.Hardware, "bfloat16", lambda self, able=able: able and self.precision != "float32")
        for precision in ("float32", "bfloat16", "auto"):
            config = quiet(epochs=1, batch_size=32, hardware=ps.Hardware(precision=precision))
            ps.fit(network(), task(64), config=config)
    assert measured == [32]
