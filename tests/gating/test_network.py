"""GatedNetwork: its labels, modes, precision and input sizes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import penstock as ps
from helpers.zoo import sequential
from penstock.errors import LabelError


@pytest.mark.parametrize("layer", [ps.LayerConfig(), ps.LayerConfig("gate"), ps.LayerConfig("compression")])
def test_a_users_stage_may_change_its_input_in_place(layer):
    stages = [nn.Linear(6, 8), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 3))]
    net = ps.gate(stages, torch.zeros(2, 6), layer=layer).train()
    x, y = torch.randn(8, 6), torch.arange(8) % 3
    ps.Objective()(net, net(x), y).total.backward()
    assert all(parameter.grad is not None for parameter in net.stages.parameters())


def test_series_of_any_length_where_nothing_fixes_it():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3))
    net = ps.gate(model, torch.zeros(2, 3, 20), at="1", layer=ps.LayerConfig(granularity="channel")).eval()
    x = torch.randn(5, 3, 33)
    assert torch.equal(net(x).logits, model(x))
    net.predict(x)


def test_ungated_networks_are_in_the_mode_of_the_gated_one():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)
            self.register_buffer("shift", torch.ones(6))

        def forward(self, x):
            return self.b(F.dropout(self.a(x), 0.5, self.training) + self.shift)

    net, x = ps.gate(Functional().train(), torch.zeros(2, 6), at="a"), torch.randn(9, 6)
    plain = ps.ungate(net.eval())
    assert not plain.training
    assert torch.equal(plain(x), plain(x))
    assert ps.ungate(net.train()).training
    halved = ps.ungate(net.bfloat16())
    assert halved.shift.dtype == halved.a.weight.dtype == torch.bfloat16


def test_a_network_of_another_precision():
    for dtype in (torch.float64, torch.bfloat16):
        net, x = ps.gate(sequential().to(dtype), torch.zeros(2, 6, dtype=dtype), at=0.5), torch.randn(9, 6, dtype=dtype)
        out = net(x)
        assert out.logits.dtype == dtype
        ps.Objective()(net, out, torch.zeros(9, dtype=torch.int64)).total.backward()
        net.predict(x)


def test_a_gated_network_can_be_copied_and_stays_whole():
    net, x = ps.gate(sequential(), torch.zeros(2, 6), at=0.5), torch.randn(5, 6)
    other = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    assert torch.equal(ps.ungate(other)[0].weight, net.origin[0].weight + 1)
    assert not torch.equal(other.eval()(x).logits, net.eval()(x).logits)
    assert torch.equal(ps.ungate(other).eval()(x), other.eval()(x).logits)  # its masks are still full: φ only grew


def test_labels_outside_the_classes_are_refused():
    x = torch.zeros(2, 6)
    with pytest.raises(LabelError, match=r"positives .*0 … 3.*\[7\]"):
        ps.gate(sequential(), x, at=0.3, positives={1, 7})
    with pytest.raises(LabelError, match=r"background .*4"):
        ps.gate(sequential(), x, at=0.3, background=4)


def test_a_class_gate_has_the_background_of_its_network():
    net = ps.gate(sequential(), torch.zeros(2, 6), at=0.5, layer=ps.LayerConfig(class_loss_weight=0.3), background=2)
    assert net.layers[0].gate.outside.tolist() == [2]
    with pytest.raises(LabelError, match=r"background = 0.* 2"):
        ps.GatedNetwork(net.stages, net.layers, net.spec, net.origin)


def test_gates_that_nothing_could_pass_are_refused():
    with pytest.raises(LabelError, match=r"positives \[\(1,\), \(2,\)\]"):
        ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1}, {2}])
