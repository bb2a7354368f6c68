"""Each method of the paper builds the network it names and trains it."""

import json
from dataclasses import replace

import pytest
import torch

from penstock.training.config import FitConfig
from penstock.training.module import History
from reproduction.experiments import methods, tasks
from reproduction.experiments.methods import (
    GC,
    Baseline,
    BranchyNet,
    C,
    Dropout,
    G,
    GateInput,
    Masks,
    TwoStage,
    method_key,
)
from reproduction.experiments.runner import build, compute
from reproduction.experiments.runs import Run

METHODS = [
    Baseline(),
    BranchyNet(),
    G(0.5),
    C(0.3),
    GC(0.5, 0.3),
    GC(0.5, 0.3, (2, 4, 6)),
    GateInput(0, 0.5, 0.3),
    GateInput(2, 0.5, 0.3),
    GateInput(4, 0.5, 0.3),
    GateInput(7, 0.5, 0.3),
    TwoStage(1, 0.5, 0.3),
    TwoStage(1, 0.5, None),
    Dropout(0.3),
]


@pytest.mark.parametrize("method", METHODS, ids=method_key)
def test_each_method_trains_and_is_measured(method) -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    result = compute(Run("tones", method, 0), data)
    assert json.loads(json.dumps(result)) == result
    gated = not isinstance(method, (Baseline, C, Dropout))
    assert set(result["test"]["points"]) == (
        {"even", "accurate", "lost 0.005", "lost 0.01", "lost 0.02"} if gated else {"even"}
    )
    assert 0 < result["test"]["accuracy_open"] <= 1
    assert any(gate_ is not None for gate_ in result["test"]["gates"]) == gated
    if not gated:
        assert result["test"]["points"]["even"]["early_stopping"] == 0


def test_the_halves_of_a_gate_input_are_where_they_should_be() -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    early = build(Run("tones", GateInput(2, 0.5, 0.3), 0), data)
    assert [layer.gate is not None for layer in early.layers] == [True, False]
    assert [layer.compression is not None for layer in early.layers] == [False, True]
    late = build(Run("tones", GateInput(6, 0.5, 0.3), 0), data)
    assert [layer.gate is not None for layer in late.layers] == [False, True]
    plain = build(Run("tones", Baseline(), 0), data)
    x = data.test[0][:5]
    for net in (early, late):  # masks are full before the training
        torch.testing.assert_close(net.eval()(x).logits, plain.eval()(x).logits)


@pytest.mark.parametrize("masks", [Masks(), Masks(drawn=True, p=1.0)], ids=str)
@pytest.mark.parametrize(
    "method", [C(0.3), GC(0.5, 0.3, (2, 4)), GateInput(2, 0.5, 0.3), TwoStage(1, 0.5, 0.3)], ids=str
)
def test_the_budget_says_how_masks_are_trained(monkeypatch, method, masks) -> None:
    task = tasks.TASKS["tones"]
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, lite=replace(task.lite, masks=masks)))
    net = build(Run("tones", method, 0), task.data(None, "lite"))
    made = [layer.compression.mask_kind for layer in net.layers if layer.compression is not None]
    assert made and set(made) == {masks.kind}
    seen = []
    monkeypatch.setattr(methods, "fit", lambda *_, objective, **__: seen.append(objective) or History())
    monkeypatch.setattr(methods, "fit_in_two_stages", lambda *_, objective, **__: seen.append(objective) or [History()])
    method.train(net, None, masks, FitConfig())
    assert [objective.p for objective in seen] == [masks.p]


def test_dropout_is_the_network_as_it_is_in_deployment_and_noise_in_training() -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    plain, noisy = (build(Run("tones", method, 0), data) for method in (Baseline(), Dropout(0.5)))
    x = data.test[0][:5]
    torch.testing.assert_close(noisy.eval()(x).logits, plain.eval()(x).logits)
    noisy.train()
    assert not torch.equal(noisy(x).logits, noisy(x).logits)
