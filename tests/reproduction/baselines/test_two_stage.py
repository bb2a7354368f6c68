"""Two stages: no gradient crosses the cut, each side learns in its turn alone, and the network stays what it was."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import penstock as ps
from penstock.errors import TrainingError
from penstock.training.fit import fit
from penstock.training.module import GatedLightningModule
from reproduction.baselines import fit_in_two_stages, stop_gradients

pytestmark = pytest.mark.filterwarnings(
    "ignore::penstock.training.module.CollapseWarning"
)  # a few steps do not train a gate

SAMPLES = 128
STEPS = 4  # an epoch


def quiet(**options) -> ps.FitConfig:
    return ps.FitConfig(progress=False, batch_size=SAMPLES // STEPS, **options)


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3))


def net_and_data() -> tuple[ps.GatedNetwork, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    model = plain()
    x, y = torch.randn(SAMPLES, 6), torch.arange(SAMPLES) % 3
    return ps.gate(model, x[:1], at="1"), (x, y)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_stopping_gradients_changes_no_output_and_cuts_the_way_back() -> None:
    net, (x, _) = net_and_data()
    before = net(x)
    with stop_gradients(net):
        after = net(x)
    torch.testing.assert_close(after.logits, before.logits, rtol=0, atol=0)
    after.logits.sum().backward()
    assert all(p.grad is None for p in [*net.stages[0].parameters(), *net.layers.parameters()])
    assert all(p.grad is not None for p in net.stages[1].parameters())


def test_each_side_learns_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = net_and_data()
    learnt = []

    def watched(net: ps.GatedNetwork, *arguments, **options):
        old = copy.deepcopy(net)
        history = fit(net, *arguments, **options)
        learnt.append([not same_weights(new, was) for new, was in zip(net.stages, old.stages, strict=True)])
        return history

    monkeypatch.setattr("reproduction.baselines.two_stage.fit", watched)
    histories = fit_in_two_stages(net, data, switch_every=1, config=quiet(epochs=4))
    assert learnt == [[True, False], [False, True]] * 2
    assert len(histories) == 4
    assert all(p.requires_grad for p in net.parameters())


class Noted(Dataset):
    """Samples that write down when they are asked for."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.targets, self.asked = x, y, []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        self.asked.append(i)
        return self.x[i], self.targets[i]


def orders(epochs: int, seed: int) -> list[tuple[int, ...]]:
    """Return the order of the samples in each epoch of a training with turns of one epoch."""
    net, pair = net_and_data()
    data = Noted(*pair)
    fit_in_two_stages(net, data, switch_every=1, config=quiet(epochs=epochs, seed=seed))
    return [tuple(data.asked[i : i + SAMPLES]) for i in range(0, epochs * SAMPLES, SAMPLES)]


def test_each_turn_sees_an_order_of_its_own() -> None:
    first = orders(epochs=4, seed=0)
    assert all(sorted(order) == list(range(SAMPLES)) for order in first)
    assert orders(epochs=2, seed=0) == first[:2]  # whatever comes after
    assert len({*first, *orders(epochs=4, seed=1)}) == 8


def test_afterwards_the_network_is_the_plain_gated_network_again(tmp_path: Path) -> None:
    net, data = net_and_data()
    stages, names = list(net.stages), list(net.state_dict())
    fit_in_two_stages(net, data, switch_every=1, config=quiet(epochs=2))
    assert all(now is before for now, before in zip(net.stages, stages, strict=True))
    assert list(net.state_dict()) == names
    ps.save(net, tmp_path / "net.safetensors")
    assert same_weights(ps.load(tmp_path / "net.safetensors", plain()), net)
    x, _ = data
    torch.testing.assert_close(ps.ungate(ps.gate(ps.ungate(net), x[:1], at="1"))(x), ps.ungate(net)(x))


class PowerCut(Exception):
    pass


def steps_until(end: int | None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the steps of trainings from now on in a list; fail when there are ``end``."""
    steps: list[int] = []
    real = GatedLightningModule.training_step

    def counted(self, batch, index):
        if len(steps) == end:
            raise PowerCut
        steps.append(index)
        return real(self, batch, index)

    monkeypatch.setattr(GatedLightningModule, "training_step", counted)
    return steps


def test_a_failure_leaves_the_plain_gated_network_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = net_and_data()
    stages = list(net.stages)
    steps_until(3, monkeypatch)
    with pytest.raises(PowerCut):
        fit_in_two_stages(net, data, switch_every=1, config=quiet(epochs=2))
    assert all(now is before for now, before in zip(net.stages, stages, strict=True))
    assert all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize(
    ("broken_at", "left"),
    [(5, 3), (8, 2), (13, 1)],
    ids=["within the first turn", "between the turns", "within the second turn"],
)
def test_a_broken_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_at: int, left: int) -> None:
    unbroken, data = net_and_data()
    fit_in_two_stages(unbroken, data, switch_every=2, config=quiet(epochs=4))
    with monkeypatch.context() as first:
        steps_until(broken_at, first)
        with pytest.raises(PowerCut):
            fit_in_two_stages(net_and_data()[0], data, switch_every=2, config=quiet(epochs=4, folder=tmp_path))
    again, _ = net_and_data()
    steps = steps_until(None, monkeypatch)
    histories = fit_in_two_stages(again, data, switch_every=2, config=quiet(epochs=4, folder=tmp_path))
    assert len(steps) == left * STEPS  # complete epochs are not computed again
    assert [len(history.epochs) for history in histories] == [2, 2]
    assert same_weights(again, unbroken)


def test_turns_are_equally_long() -> None:
    net, data = net_and_data()
    with pytest.raises(TrainingError, match=r"switch_every.* 6 epochs.* 4"):
        fit_in_two_stages(net, data, switch_every=4, config=ps.FitConfig(epochs=6))


@pytest.mark.parametrize(("epochs", "switch_every", "turns"), [(1, 1, 1), (6, 2, 3), (12, 4, 3)])
def test_both_sides_have_as_many_turns(epochs: int, switch_every: int, turns: int) -> None:
    net, data = net_and_data()
    before = copy.deepcopy(net)
    text = rf"{turns} turns.*multiple of {2 * switch_every}\b"
    with pytest.raises(TrainingError, match=text):
        fit_in_two_stages(net, data, switch_every=switch_every, config=quiet(epochs=epochs))
    assert same_weights(net, before)
