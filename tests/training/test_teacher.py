"""Distillation: against a dumber implementation; a teacher helps where labels are bad; wrong ones are refused."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.small_task import network, pretrained, quiet, task
from penstock.errors import ObjectiveError, TrainingError


def divergence(ours, theirs):
    """KL(theirs || ours) of two rows of logits, in double precision and by the book."""
    p, q = theirs.double().softmax(0), ours.double().softmax(0)
    return sum(float(a) * (float(a.log()) - float(b.log())) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("class_loss_weight", [0.0, 0.4])
def test_the_loss_with_a_teacher_is_the_one_by_hand(class_loss_weight) -> None:
    net = network(layer=ps.LayerConfig(class_loss_weight=class_loss_weight)).eval()
    objective = ps.Objective(alpha=0.4, beta=0.3, distillation=0.3, temperature=2.5)
    x, y = task(8)
    teacher = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)) * 3
    with torch.no_grad():
        out = net(x)
    plain, taught = objective(net, out, y), objective(net, out, y, teacher)
    far = [divergence(a / 2.5, b / 2.5) for a, b in zip(out.logits, teacher, strict=True)]
    expected = 0.7 * plain.prediction.item() + 0.3 * 2.5**2 * sum(far) / 8
    assert taught.prediction.item() == pytest.approx(expected, rel=1e-4)
    raw = out.gate_outputs[0]
    if class_loss_weight:
        far = [divergence(a / 2.5, b / 2.5) for a, b in zip(raw, teacher, strict=True)]
    else:
        far = []
        for logit, row in zip(raw, teacher / 2.5, strict=True):
            odds = row[1:].logsumexp(0) - row[0]
            far.append(divergence(torch.stack([torch.zeros(()), logit / 2.5]), torch.stack([torch.zeros(()), odds])))
    expected = 0.7 * plain.gate.item() + 0.3 * 2.5**2 * sum(far) / 8
    assert taught.gate.item() == pytest.approx(expected, rel=1e-4)
    assert taught.transmission == plain.transmission


def test_a_teacher_that_agrees_costs_nothing_and_no_weight_is_no_teacher() -> None:
    net, (x, y) = network().eval(), task(16)
    out, objective = net(x), ps.Objective(distillation=1.0)
    assert objective(net, out, y, out.logits.detach()).prediction.item() == pytest.approx(0, abs=1e-6)
    without = replace(objective, distillation=0.0)
    assert without(net, out, y, torch.randn(16, 4)).total == without(net, out, y).total


def test_a_teacher_is_neither_trained_nor_saved_and_teaches() -> None:
    """With a few noisy labels the teacher knows more than they do."""
    teacher = pretrained()
    before = copy.deepcopy(teacher.state_dict())
    x, y = task(256)
    noisy = torch.where(torch.rand(256, generator=torch.Generator().manual_seed(0)) < 0.4, y.roll(1), y)
    test = task(2000, seed=7)
    accuracies = {}
    for name, given in (("alone", None), ("taught", teacher)):
        torch.manual_seed(1)
        fresh = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
        net = ps.gate(fresh, torch.zeros(2, 6), at="1", layer=ps.LayerConfig("gate"))
        ps.fit(
            net,
            (x, noisy),
            objective=ps.Objective(distillation=0.9),
            config=quiet(epochs=40, batch_size=64),
            teacher=given,
        )
        accuracies[name] = ps.evaluate(net, test).accuracy_open
    assert accuracies["taught"] > accuracies["alone"] + 0.05
    after = teacher.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_the_networks_own_modules_can_be_its_teacher() -> None:
    net = ps.gate(pretrained(), torch.zeros(2, 6), at="2")
    teacher = ps.ungate(net)
    ps.fit(net, task(256), config=quiet(epochs=6, batch_size=32), teacher=teacher)
    assert not teacher.training


def test_a_teacher_of_other_classes_is_refused_and_another_one_does_not_resume(tmp_path) -> None:
    with pytest.raises(ObjectiveError, match=r"4\).*, 7\)"):
        ps.fit(network(), task(64), config=quiet(epochs=1), teacher=nn.Linear(6, 7))
    run = quiet(epochs=1, folder=tmp_path)
    ps.fit(network(), task(64), config=run, teacher=pretrained())
    with pytest.raises(TrainingError, match="teacher"):
        ps.fit(network(), task(64), config=run, teacher=pretrained(seed=1))


@pytest.mark.parametrize("wrong", [{"distillation": 1.5}, {"temperature": 0.0}])
def test_wrong_numbers_are_refused(wrong) -> None:
    (name,) = wrong
    with pytest.raises(ObjectiveError, match=name):
        ps.Objective(**wrong)
