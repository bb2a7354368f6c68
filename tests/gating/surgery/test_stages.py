"""Networks given as lists of stages, and what gating keeps."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import sequential
from penstock.errors import CutError, LabelError, ShapeError


class Looking(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x):
        return self.fc(x) if x.mean() > 0 else self.fc(-x)


def stages():
    return [nn.Linear(6, 5), Looking(), nn.Linear(5, 3)]


def test_a_list_of_stages_is_gated_between_each_two():
    parts, x = stages(), torch.randn(4, 6)
    net = ps.gate(parts, x)
    assert [layer.feature for layer in net.layers] == [(5,), (5,)]
    assert net.spec.macs == (30, 25, 15)
    expected = nn.Sequential(*parts)(x)
    assert torch.equal(net(x).logits, expected)
    back = ps.ungate(net)
    assert isinstance(back, list)
    assert torch.equal(nn.Sequential(*back)(x), expected)


def test_a_list_of_stages_can_be_saved_and_loaded(tmp_path):
    net, x = ps.gate(stages(), torch.randn(4, 6)), torch.randn(4, 6)
    ps.save(net, tmp_path / "net.safetensors")
    assert torch.equal(ps.load(tmp_path / "net.safetensors", stages())(x).logits, net(x).logits)


def test_bad_lists():
    with pytest.raises(CutError, match=r"at least 2 .*\['Linear'\]"):
        ps.gate([nn.Linear(6, 3)], torch.zeros(1, 6))
    with pytest.raises(CutError, match="'str'"):
        ps.gate([nn.Linear(6, 3), "head"], torch.zeros(1, 6))
    with pytest.raises(CutError, match=r"at .*0.4"):
        ps.gate(stages(), torch.zeros(1, 6), at=0.4)
    with pytest.raises(ShapeError, match=r"stage 2 .*\(1, 5\)"):
        ps.gate([nn.Linear(6, 5), nn.Linear(4, 3)], torch.zeros(1, 6))
    with pytest.raises(ShapeError, match=r"stage 1 .*tuple"):
        ps.gate([nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)], torch.zeros(1, 4, 6))


def test_values_of_numpy_and_torch_are_values_too():
    x = torch.zeros(2, 6)
    for at in (np.float32(0.5), np.float64(0.5), np.int64(1), np.array([0.5]), [np.float32(0.5)]):
        assert ps.gate(sequential(), x, at=at).spec.at == ps.gate(sequential(), x, at=0.5).spec.at
    for positives in ({np.int64(1), np.int64(2)}, np.array([1, 2]), torch.tensor([1, 2]), [np.array([1, 2])]):
        assert ps.gate(sequential(), x, at=0.5, positives=positives).layers[0].gate.positives == (1, 2)
    with pytest.raises(LabelError, match="positives"):
        ps.gate(sequential(), x, at=0.5, positives=np.array([], int))
    with pytest.raises(CutError, match=r"at .*1\)?"):
        ps.gate(sequential(), x, at=np.array([1, 2]))


def test_one_value_for_all_or_one_for_each():
    x = torch.zeros(2, 6)
    net = ps.gate(sequential(), x, at=[0.3, 0.7], positives={1, 2})
    assert [layer.gate.positives for layer in net.layers] == [(1, 2), (1, 2)]
    net = ps.gate(
        sequential(),
        x,
        at=[0.3, 0.7],
        positives=[None, {1}],
        layer=[ps.LayerConfig("gate"), ps.LayerConfig("compression")],
    )
    assert net.layers[0].gate.positives is None
    assert net.layers[0].compression is None
    assert net.layers[1].gate is None
    with pytest.raises(LabelError, match=r"positives .*2 gates.* 3"):
        ps.gate(sequential(), x, at=[0.3, 0.7], positives=[{1}, {2}, {3}])
    with pytest.raises(CutError, match="LayerConfig"):
        ps.gate(sequential(), x, at=[0.3, 0.7], layer=[ps.LayerConfig()])
    with pytest.raises(LabelError, match=r"positives .*0 … 3.*\[7\]"):
        ps.gate(sequential(), x, at=0.3, positives={1, 7})
    with pytest.raises(LabelError, match=r"background .*4"):
        ps.gate(sequential(), x, at=0.3, background=4)


def test_a_gated_network_can_be_copied_and_stays_whole():
    net, x = ps.gate(sequential(), torch.zeros(2, 6), at=0.5), torch.randn(5, 6)
    other = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    assert torch.equal(ps.ungate(other)[0].weight, net.origin[0].weight + 1)
    assert not torch.equal(other.eval()(x).logits, net.eval()(x).logits)
    assert torch.equal(ps.ungate(other).eval()(x), other.eval()(x).logits)  # its masks are still full: φ only grew


def test_trained_weights_come_back():
    net, x, y = ps.gate(sequential(), torch.zeros(2, 6), at=0.5), torch.randn(32, 6), torch.randint(0, 4, (32,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.train()
    for _ in range(5):
        optimizer.zero_grad()
        ps.Objective(beta=0)(net, net(x), y).total.backward()
        optimizer.step()
    plain = ps.ungate(net)
    assert torch.equal(plain.eval()(x), net.eval()(x).logits)
    assert plain[1].num_batches_tracked == 5


def test_mode_and_frozen_parts_are_kept():
    model = sequential().train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    net = ps.gate(model, torch.zeros(2, 6), at=0.5)
    assert net.training
    assert not net.origin[1].training
    assert not net.origin[0].weight.requires_grad
    assert not ps.gate(model.eval(), torch.zeros(2, 6), at=0.5).training


def test_a_gated_network_prints_as_a_table():
    text = str(ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1, 2}, {1}]))
    assert "{1, 2}" in text
    assert max(map(len, text.splitlines())) <= 100
