"""MACs against a count by hand; examples and outputs that do not fit."""

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import Encoder, Recurrent, build, sequential
from penstock.errors import CutError, ShapeError


def macs_by_hand(model, x):
    """Count the MACs of convolutions and linear layers from their shapes alone."""
    total = 0

    def count(module, inputs, output):
        nonlocal total
        if isinstance(module, nn.Linear):
            total += output[0].numel() * module.in_features
        else:
            total += output[0].numel() * module.weight[0].numel()

    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            module.register_forward_hook(count)
    model(x)
    return total


@pytest.mark.parametrize("name", ["sequential", "conv1d", "resnet8", "resnet8_1d", "shared", "sized"])
def test_macs_against_a_count_by_hand(name):
    model, draw = build(name)
    net = ps.gate(model, draw(2), at=1)
    assert sum(net.spec.macs) == macs_by_hand(model.eval(), draw(1))


def test_macs_of_recurrent_and_attention_layers():
    net = ps.gate(Recurrent(), torch.zeros(1, 9, 6), at="lstm")
    assert net.spec.macs == (9 * 4 * 10 * (6 + 10), 9 * 3 * 8 * (10 + 8) + 8 * 4)
    net = ps.gate(Encoder(), torch.zeros(1, 7, dtype=torch.int64), at="encoder.layers.0")
    layer = 7 * 16 * 48 + 2 * 7 * 7 * 16 + 7 * 16 * 16 + 2 * 7 * 16 * 32
    assert net.spec.macs == (layer, 2 * layer + 16 * 4)


@pytest.mark.parametrize(
    ("example", "text"),
    [
        (torch.zeros(2, 7), r"Sequential.*\(2, 7\), torch.float32"),
        (torch.zeros(2, 6, dtype=torch.int64), r"Sequential.*\(2, 6\), torch.int64"),
        (torch.zeros(6), r"batch .*\(6,\)"),
        (torch.zeros(0, 6), r"batch .*\(0, 6\)"),
        ([1, 2], "tensor .*list"),
    ],
)
def test_an_example_that_does_not_fit(example, text):
    with pytest.raises(ShapeError, match=text):
        ps.cuts(sequential(), example)


def test_a_network_for_one_batch_size_only():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.b(self.a(x).reshape(4, 6))

    with pytest.raises(ShapeError, match="any batch size"):
        ps.cuts(Fixed(), torch.zeros(4, 6))


def test_an_output_that_is_not_one_tensor_of_class_logits_is_refused():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            x = self.a(x)
            return self.b(x), x

    class Map(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(6, 3, 1)

        def forward(self, x):
            return self.conv(x)

    with pytest.raises(CutError, match=r"Two .*tuple"):
        ps.cuts(Two(), torch.zeros(2, 6))
    with pytest.raises(CutError, match=r"Map .*\('batch', 3, 5\)"):
        ps.cuts(Map(), torch.zeros(2, 6, 5))


def test_stages_that_do_not_fit_together_are_refused():
    with pytest.raises(ShapeError, match=r"stage 2 .*\(1, 5\)"):
        ps.gate([nn.Linear(6, 5), nn.Linear(4, 3)], torch.zeros(1, 6))
    with pytest.raises(ShapeError, match=r"stage 1 .*tuple"):
        ps.gate([nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)], torch.zeros(1, 4, 6))


def test_an_integer_read_off_the_data_is_no_size():
    class Largest(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, tokens):
            largest = tokens.max().item()
            return self.fc(self.embed(tokens).mean(1) * largest)

    model, tokens = Largest(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    names = [name for cut in ps.cuts(model, tokens) for name in (cut.name, *cut.also)]
    assert "embed" not in names  # the integer crosses there too
