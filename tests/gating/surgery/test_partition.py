"""Stages: in-place operations, and sizes of earlier stages."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import penstock as ps
from helpers.zoo import InPlace, Sized
from penstock.errors import ShapeError


def test_a_buffer_changed_in_the_graph_is_changed_once_a_call():
    net, x = ps.gate(InPlace(), torch.zeros(2, 6), at="b"), torch.randn(8, 6)
    net(x), net(x)
    plain = ps.ungate(net)
    expected = F.relu(plain.a(x) + 0.3).mean(0) * 2
    torch.testing.assert_close(plain.mean, expected)


def test_an_in_place_operation_on_a_view_trains():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(4 * 8, 3))
    for layer in (ps.LayerConfig(), ps.LayerConfig("gate")):
        net, x = ps.gate(model, torch.zeros(2, 3, 10), at="0", layer=layer), torch.randn(4, 3, 10)
        ps.Objective()(net, net(x), torch.tensor([0, 1, 2, 0])).total.backward()
        gradients = [p.grad for p in net.stages.parameters()]
        assert gradients and all(g is not None and g.isfinite().all() and g.abs().sum() > 0 for g in gradients)


def test_sizes_of_earlier_stages_fix_the_input():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            length = x.shape[1]
            return self.c(self.b(self.a(x)).sum(1) / length)

    net = ps.gate(Average(), torch.zeros(2, 10, 6), at="b", layer=ps.LayerConfig(granularity="feature"))
    for call in (net, net.predict):
        with pytest.raises(ShapeError, match=r"\(2, 20, 6\)"):
            call(torch.randn(2, 20, 6))
    net(torch.randn(5, 10, 6))
    assert ps.gate(Sized(), torch.zeros(2, 3, 16, 16), at="patch").spec.fixed_size
