"""What is frozen stays as it is, to the last bit, and what passes is answered as before."""

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.small_task import pretrained, quiet, task
from penstock.errors import TrainingError
from penstock.training.freezing import Freezing


@pytest.mark.parametrize("at", ["2", ["2", "4"]])
def test_with_trained_gates_whatever_passes_is_answered_exactly_as_before(at) -> None:
    model = pretrained()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    net = ps.gate(model, torch.zeros(2, 6), at=at)
    ps.fit(net, task(512), task(256, seed=1), train_only="gates", config=quiet(epochs=8))
    x, _ = task(512, seed=2)
    prediction = net.predict(x)
    passed = ~prediction.stopped
    assert 0 < passed.sum() < len(x), "the gate stops some and passes some"
    assert torch.equal(prediction.logits[passed], model(x).detach()[passed])
    assert ps.evaluate(net, task(512, seed=2)).gates[0].auc > 0.9
    after = ps.ungate(net).state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)
    assert all(layer.density == 1 for layer in net.layers)


def test_masks_can_be_trained_with_the_gates() -> None:
    model = pretrained()
    net = ps.gate(model, torch.zeros(2, 6), at="2")
    ps.fit(
        net,
        task(512),
        objective=ps.Objective(beta=0.9),
        train_only="gates and masks",
        config=quiet(epochs=20, batch_size=32),
    )
    assert net.layers[0].density < 1
    after, before = ps.ungate(net).state_dict(), model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_named_parts_are_frozen_with_their_statistics_and_train_again_later() -> None:
    model = pretrained()
    net = ps.gate(model, torch.zeros(2, 6), at="2")
    ps.fit(net, task(512), config=quiet(epochs=2, frozen=("0", "1")))
    after, before = ps.ungate(net).state_dict(), model.state_dict()
    same = {name for name in before if torch.equal(after[name], before[name])}
    assert same == {name for name in before if name.startswith(("0.", "1."))}
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_what_cannot_be_frozen_is_named() -> None:
    net = ps.gate(pretrained(), torch.zeros(2, 6), at="2")
    with pytest.raises(TrainingError, match=r"'O'"):
        ps.fit(net, task(64), config=quiet(epochs=1, frozen=("O",)))
    with pytest.raises(TrainingError, match=r"train_only.*'gate'"):
        ps.fit(net, task(64), train_only="gate", config=quiet(epochs=1))
    plain = ps.gate(pretrained(), torch.zeros(2, 6), at=0)
    with pytest.raises(TrainingError, match=r"train_only='gates'"):
        ps.fit(plain, task(64), train_only="gates", config=quiet(epochs=1))
    with pytest.raises(TrainingError, match="frozen"):
        ps.fit(plain, task(64), config=quiet(epochs=1, frozen=tuple("0123456")))


def test_a_module_that_was_cut_is_frozen_in_every_stage() -> None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            return self.head(self.body(x))

    net = ps.gate(Net(), torch.zeros(2, 6), at="body.1")
    frozen = {id(parameter) for parameter in Freezing(net, frozen=["body"]).parameters}
    assert frozen == {id(parameter) for name, parameter in net.stages.named_parameters() if ".body." in name}
    assert len(frozen) == 4
