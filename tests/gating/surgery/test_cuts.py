"""Finding cuts, and saying why not."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import ZOO, Branching, Encoder, Recurrent, Shared, build, sequential
from penstock.errors import CutError, ShapeError
from penstock.gating.surgery.cuts import survey
from penstock.models.resnet import resnet8


@pytest.mark.parametrize("name", sorted(ZOO))
def test_cuts_are_in_order_and_cost_more_and_more(name):
    model, draw = build(name)
    found = ps.cuts(model, draw(1))
    assert found
    for one, next_ in pairwise(found):
        assert one.depth <= next_.depth
        assert one.macs <= next_.macs
    assert all(0 < cut.depth < 1 for cut in found)
    assert len({cut.name for cut in found}) == len(found)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_cut_can_be_gated_by_its_name_and_is_the_original(name):
    model, draw = build(name)
    x, surveyed = draw(4), survey(model, draw(2))
    for cut in ps.cuts(model, draw(2)):
        net = ps.gate(model, draw(2), at=cut.name)
        assert net.layers[0].feature == cut.shape
        assert net.spec.macs[0] == cut.macs
        assert torch.equal(net.eval()(x).logits, model.eval()(x)), cut.name
        for other in cut.also:  # `gate` finds its places so
            assert [place.cut.name for place in surveyed.find(other)] == [cut.name]


def test_the_papers_depths():
    """Eight blocks and two linear blocks: a gate after block i stands at i · 10 %."""
    found = {cut.name: cut for cut in ps.cuts(resnet8(), torch.zeros(1, 1, 28, 28))}
    for i in range(1, 8):
        assert found[f"blocks.{i - 1}"].depth == pytest.approx(i / 10)
    assert found["blocks"].depth == pytest.approx(0.8)
    assert found["hidden"].depth == pytest.approx(0.9)


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


def test_by_depth_by_count_by_name():
    model, x = resnet8(), torch.zeros(2, 1, 28, 28)
    assert ps.gate(model, x, at=0.4).spec.at == ("blocks.3",)
    assert ps.gate(model, x, at=[0.2, 0.4, 0.6]).spec.at == ("blocks.1", "blocks.3", "blocks.5")
    assert ps.gate(model, x, at=4).spec.at[:3] == ("blocks.1", "blocks.3", "blocks.5")
    assert ps.gate(model, x, at=["blocks.5", "blocks.0"]).spec.at == ("blocks.0", "blocks.5")
    assert ps.gate(model, x, at=0).spec.at == ()


def test_a_second_call_has_a_name_of_its_own():
    names = [name for cut in ps.cuts(Shared(), torch.zeros(1, 6)) for name in (cut.name, *cut.also)]
    assert {"again", "again#2", "again#3"} <= set(names)


def test_what_cannot_be_traced_stays_in_one_piece():
    assert [cut.name for cut in ps.cuts(Branching(), torch.ones(2, 6))] == ["before", "relu", "inner", "relu#2"]
    with pytest.raises(CutError, match=r"'inner.fc'.*'inner'"):
        ps.gate(Branching(), torch.ones(2, 6), at="inner.fc")


def test_cuts_print_as_a_table():
    text = str(ps.cuts(sequential(), torch.zeros(1, 6)))
    assert "MACs before" in text
    assert max(map(len, text.splitlines())) <= 100


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        y = self.a(x)
        return self.c(self.b(y) + y)


def test_a_cut_that_several_tensors_cross_names_them():
    with pytest.raises(CutError, match=r"'b': 2 tensors.*\(a, b.*'add', 'a'"):
        ps.gate(Skip(), torch.zeros(1, 6), at="b")


def test_an_unknown_name_is_answered_with_close_ones():
    with pytest.raises(CutError, match=r"'blocks.33'.*BlockNet.*'blocks.3'"):
        ps.gate(resnet8(), torch.zeros(1, 1, 28, 28), at="blocks.33")


@pytest.mark.parametrize("depth", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_depth_outside_is_refused(depth):
    with pytest.raises(CutError, match=rf"depth .*{depth}"):
        ps.gate(sequential(), torch.zeros(2, 6), at=depth)


@pytest.mark.parametrize(("at", "token"), [(True, "True"), (-1, "-1"), ([2], "2"), ([None], "None"), ([b"x"], "b'x'")])
def test_places_that_make_no_sense(at, token):
    with pytest.raises(CutError, match=f"at .*got {token}"):
        ps.gate(sequential(), torch.zeros(2, 6), at=at)


def test_two_gates_at_one_place():
    with pytest.raises(CutError, match=r"0.38 and 0.42 .*'blocks.3'.*0.10, 0.20"):
        ps.gate(resnet8(), torch.zeros(1, 1, 28, 28), at=[0.38, 0.42])


def test_at_is_missing():
    with pytest.raises(CutError, match="at is missing"):
        ps.gate(sequential(), torch.zeros(2, 6))


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


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.a(x)
        if x.sum() > 0:
            x = -x
        return self.b(x)


def test_data_dependent_flow_says_where_and_what_to_do():
    with pytest.raises(CutError, match=r"Flow.forward .*'if x.sum\(\) > 0:'.*gate\(\[stage1"):
        ps.cuts(Flow(), torch.zeros(2, 6))


def test_several_outputs_and_inputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            x = self.a(x)
            return self.b(x), x

    class Pair(nn.Module):
        def forward(self, left, right):
            return left + right

    class Map(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(6, 3, 1)

        def forward(self, x):
            return self.conv(x)

    class Aux(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            x = self.a(x)
            return (self.b(x), x) if self.training else self.b(x)

    with pytest.raises(CutError, match=r"Two .*tuple of 2"):
        ps.cuts(Two(), torch.zeros(2, 6))
    with pytest.raises(CutError, match=r"Pair.* 2 \(left, right\)"):
        ps.cuts(Pair(), torch.zeros(2, 6))
    with pytest.raises(CutError, match=r"Map .*\('batch', 3, 5\)"):
        ps.cuts(Map(), torch.zeros(2, 6, 5))
    with pytest.raises(CutError, match=r"Aux.forward .*training .*evaluation"):
        ps.cuts(Aux(), torch.zeros(2, 6))


def test_optional_arguments_keep_their_defaults():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x, scale=2.0, mask=None):
            x = self.a(x) * scale
            return self.b(x if mask is None else x * mask)

    model, x = Optional(), torch.randn(4, 6)
    assert torch.equal(ps.gate(model, x, at=0.5)(x).logits, model(x))


def test_a_batch_that_is_not_first_cannot_be_cut():
    """Between the two transpositions time comes first: survivors could not be picked there."""

    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp, self.gru, self.fc = nn.Linear(6, 6), nn.GRU(6, 5), nn.Linear(5, 3)

        def forward(self, x):
            out, _ = self.gru(self.inp(x).transpose(0, 1))
            return self.fc(out.transpose(0, 1)[:, -1])

    names = [name for cut in ps.cuts(TimeFirst(), torch.zeros(2, 2, 6)) for name in (cut.name, *cut.also)]
    assert "inp" in names
    assert "gru" not in names
    with pytest.raises(CutError, match=r"'gru'.*shape"):
        ps.gate(TimeFirst(), torch.zeros(2, 2, 6), at="gru")
