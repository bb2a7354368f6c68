"""EpochMetrics: the same numbers as evaluate; collapsed gates and masks are noticed."""

import pytest
import torch

import penstock as ps
from helpers.small_task import network, quiet, task
from penstock.training.epoch_metrics import collapse
from penstock.training.module import CollapseWarning

pytestmark = pytest.mark.filterwarnings(  # many trainings here are short
    "ignore::penstock.training.module.CollapseWarning"
)


def test_the_metrics_of_an_epoch_are_those_of_evaluate():
    net, val = network(), task(300, seed=1)
    history = ps.fit(net, task(), val, config=quiet(epochs=2, batch_size=64))
    e, last = ps.evaluate(net, val), history.epochs[-1]
    assert last["val/accuracy"] == pytest.approx(e.accuracy)
    assert last["val/accuracy_open"] == pytest.approx(e.accuracy_open)
    assert last["val/early_stopping"] == pytest.approx(e.early_stopping)
    assert last["val/positive_lost_rate"] == pytest.approx(e.positive_lost_rate)
    assert last["val/auc/0"] == pytest.approx(e.gates[0].auc, abs=0.01)  # computed at a thousand thresholds


def test_an_empty_mask_is_noticed():
    with pytest.warns(CollapseWarning, match=r"mask 0 .*beta"):
        history = ps.fit(network(), task(), objective=ps.Objective(0.1, 50.0), config=quiet(epochs=30, batch_size=16))
    assert any("mask 0 ('5') is empty" in warning for warning in history.warnings)


def test_a_gate_that_separates_nothing_is_noticed():
    x, _ = task()
    y = torch.randint(0, 4, (len(x),), generator=torch.Generator().manual_seed(3))  # nothing to learn
    val = task(2000, seed=9)[0], torch.randint(0, 4, (2000,), generator=torch.Generator().manual_seed(4))
    with pytest.warns(CollapseWarning) as caught:
        ps.fit(network(), (x, y), val, config=quiet(epochs=2))
    assert any("gate 0 ('5') separates nothing" in str(warning.message) for warning in caught)


def test_a_gate_that_stops_or_passes_everything_is_noticed():
    net = network()
    metrics = {"auc/0": 0.9, "early_stopping/0": 1.0, "positive_lost_rate/0": 1.0}
    assert "stops everything: 100.0%" in collapse(metrics, net)[0]
    metrics = {"auc/0": 0.9, "early_stopping/0": 0.0, "positive_lost_rate/0": 0.0}
    assert "passes everything: 100.0%" in collapse(metrics, net)[0]
    assert collapse({"auc/0": 0.97, "early_stopping/0": 0.9, "positive_lost_rate/0": 0.01}, net) == []
