"""Two stages: no gradient crosses the cut, and each side learns in its turn alone."""

import copy

import pytest
import torch
from torch import nn

import penstock as ps
from penstock.baselines import fit_in_two_stages, stop_gradients
from penstock.errors import TrainingError


def net_and_data() -> tuple[ps.GatedNetwork, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))
    x, y = torch.randn(128, 6), torch.arange(128) % 3
    return ps.gate(model, x[:1], at="1"), (x, y)


def test_stopping_gradients_changes_no_output_and_cuts_the_way_back() -> None:
    net, (x, _) = net_and_data()
    before = net(x)
    stop_gradients(net)
    after = net(x)
    torch.testing.assert_close(after.logits, before.logits, rtol=0, atol=0)
    after.logits.sum().backward()
    assert all(p.grad is None for p in [*net.stages[0].parameters(), *net.layers.parameters()])
    assert all(p.grad is not None for p in net.stages[1].parameters())
    assert len(stop_gradients(net).stages[1]) == 2  # once is enough


@pytest.mark.parametrize(("turns", "learnt"), [(1, (True, False)), (2, (True, True))])
def test_each_side_learns_in_its_turn(turns: int, learnt: tuple[bool, bool]) -> None:
    net, data = net_and_data()
    old = copy.deepcopy(net)
    histories = fit_in_two_stages(net, data, epochs=turns, switch_every=1, progress=False)
    assert len(histories) == turns
    for part, was, moved in zip(net.stages, old.stages, learnt, strict=True):
        assert any(not a.equal(b) for a, b in zip(part.parameters(), was.parameters(), strict=True)) == moved
    assert all(p.requires_grad for p in net.parameters())


def test_a_broken_training_goes_on(tmp_path) -> None:
    net, data = net_and_data()
    fit_in_two_stages(net, data, epochs=2, switch_every=1, progress=False, folder=tmp_path)
    again, _ = net_and_data()
    fit_in_two_stages(again, data, epochs=2, switch_every=1, progress=False, folder=tmp_path)
    assert all(a.equal(b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


def test_turns_are_equally_long() -> None:
    net, data = net_and_data()
    with pytest.raises(TrainingError, match="switch_every = 4 is not possible with 6 epochs: turns are equally long"):
        fit_in_two_stages(net, data, epochs=6, switch_every=4)
