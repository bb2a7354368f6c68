"""gate and ungate: networks and lists of stages, one option for all gates or one for each."""

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import sequential
from penstock.errors import CutError, LabelError


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


def test_bad_lists():
    with pytest.raises(CutError, match=r"at least 2 .*\['Linear'\]"):
        ps.gate([nn.Linear(6, 3)], torch.zeros(1, 6))
    with pytest.raises(CutError, match="'str'"):
        ps.gate([nn.Linear(6, 3), "head"], torch.zeros(1, 6))
    with pytest.raises(CutError, match=r"at .*0.4"):
        ps.gate(stages(), torch.zeros(1, 6), at=0.4)


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


def test_at_is_missing():
    with pytest.raises(CutError, match="at is missing"):
        ps.gate(sequential(), torch.zeros(2, 6))


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_networks_that_cannot_be_copied_say_what_to_do():
    old = nn.utils.weight_norm(nn.Linear(6, 6))
    old(torch.zeros(1, 6))
    with pytest.raises(CutError, match=r"Sequential.*parametrizations"):
        ps.gate(nn.Sequential(old, nn.ReLU(), nn.Linear(6, 3)), torch.zeros(2, 6), at=0.5)


def series():
    return nn.Sequential(
        nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)
    )


def tokens(*first):
    return nn.Sequential(*first, nn.ReLU(), nn.Flatten(), nn.Linear(10 * 16, 3))


@pytest.mark.parametrize(
    ("model", "feature", "head"),
    [
        (series(), (4, 12), "conv2"),
        (tokens(nn.Linear(4, 16)), (10, 4), "attention"),
        (tokens(nn.Linear(4, 16), nn.LayerNorm(16)), (10, 4), "attention"),
        (tokens(nn.Linear(4, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)), (10, 4), "attention"),
    ],
    ids=["series", "linear", "norm", "transformer"],
)
def test_tokens_get_another_head_than_series(model, feature, head):
    net = ps.gate(model, torch.randn(2, *feature), at=["2" if head == "conv2" else str(len(model) - 3)])
    assert len(net.layers[0].feature) == 2
    assert net.layers[0].config.head == head


def test_a_head_that_was_asked_for_stays():
    model = tokens(nn.Linear(4, 16))
    net = ps.gate(model, torch.randn(2, 10, 4), at=["1"], layer=ps.LayerConfig(head="linear"))
    assert net.layers[0].config.head == "linear"
