"""Finding cuts, and explaining why there is none."""

from itertools import pairwise
from math import prod

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import ZOO, Branching, Shared, build, sequential
from penstock.errors import CutError
from penstock.gating.surgery.cuts import survey
from penstock.gating.surgery.partition import partition
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
    expected = model.eval()(x)
    for place in surveyed.places:  # as `gate` does, which would trace the network again for each
        cut = place.cut
        stages, _ = partition(model, surveyed, (place,))
        first = stages[0].eval()(x)
        assert first.shape[1:] == cut.shape
        assert torch.equal(stages[1].eval()(first.clone()), expected), cut.name
        for name in (cut.name, *cut.also):
            assert [found.cut.name for found in surveyed.find(name)] == [cut.name]
    for cut in (surveyed.places[0].cut, surveyed.places[-1].cut):
        net = ps.gate(model, draw(2), at=cut.name)
        assert net.layers[0].feature == cut.shape
        assert net.spec.macs[0] == cut.macs
        assert torch.equal(net.eval()(x).logits, expected), cut.name


def test_the_papers_depths():
    """Eight blocks and two linear blocks: a gate after block i stands at i · 10 %."""
    found = {cut.name: cut for cut in ps.cuts(resnet8(), torch.zeros(1, 1, 28, 28))}
    for i in range(1, 8):
        assert found[f"blocks.{i - 1}"].depth == pytest.approx(i / 10)
    assert found["blocks"].depth == pytest.approx(0.8)
    assert found["hidden"].depth == pytest.approx(0.9)


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


def test_module_names_come_before_operations():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.relu_1, self.b = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.b(torch.relu(self.relu_1(torch.relu(torch.relu(self.a(x))))))

    assert ps.gate(Named(), torch.zeros(2, 6), at="relu_1").layers[0].feature == (4,)


class Bottleneck(nn.Module):
    """Expands, then projects; its first layer passes its input on, as same-padding convolutions do."""

    def __init__(self, channels: int, wide: int, *, skip: bool):
        super().__init__()
        self.pad = nn.Identity()
        self.expand = nn.Conv1d(channels, wide, 1)
        self.act = nn.ReLU()
        self.project = nn.Conv1d(wide, channels, 1)
        self.skip = skip

    def forward(self, x):
        out = self.project(self.act(self.expand(self.pad(x))))
        return x + out if self.skip else out


def bottlenecks() -> nn.Module:
    blocks = nn.Sequential(*(Bottleneck(4, 24, skip=i % 2 == 1) for i in range(16)))
    return nn.Sequential(nn.Conv1d(2, 4, 3), blocks, nn.Flatten(), nn.Linear(4 * 14, 3))


def test_the_end_of_a_block_is_named_after_the_block_and_preferred_to_its_wide_inside() -> None:
    model, x = bottlenecks(), torch.zeros(2, 2, 16)
    found = ps.cuts(model, x)
    ends = [cut for cut in found if cut.block_end]
    assert [cut.name for cut in ends][:15] == [f"1.{i}" for i in range(15)]
    assert all(cut.shape == (4, 14) for cut in ends)
    narrow = {cut.name for cut in found if prod(cut.shape) == 4 * 14}
    for depth in (0.2, 0.33, 0.4, 0.5, 0.62, 0.77):
        (at,) = ps.gate(model, x, at=depth).spec.at
        assert at in narrow, depth
        nearest = min(abs(cut.depth - depth) for cut in found)
        assert abs(next(cut.depth for cut in found if cut.name == at) - depth) < nearest + 0.05 + 1e-9


def test_the_table_shows_ends_of_blocks_first_and_every_name_that_gate_accepts() -> None:
    model, x = bottlenecks(), torch.zeros(2, 2, 16)
    found, surveyed = ps.cuts(model, x), survey(model, x)
    text = str(found)
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert names.index("1.14") < names.index("0")
    for cut in found:
        assert cut.name in names and [place.cut for place in surveyed.find(cut.name)] == [cut]
    shares = [cut.macs_share for cut in found]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] <= 1
    assert f"{4 * 14 * 4:,}" in text, "bytes"
