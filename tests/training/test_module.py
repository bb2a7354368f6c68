"""GatedLightningModule: your own Trainer trains like `fit`; NaN, divergence and collapse are reported."""

import functools
import warnings
from dataclasses import replace

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset

import penstock as ps
from helpers.small_task import network, quiet, task, weights
from penstock.errors import TrainingError
from penstock.training.module import CollapseWarning

pytestmark = pytest.mark.filterwarnings(  # Lightning's advice, which `fit` silences
    "ignore::penstock.training.module.CollapseWarning",
    "ignore::UserWarning:lightning",
    "ignore::FutureWarning:lightning",
    "ignore:.*LeafSpec.*:FutureWarning",
    "ignore:.*val_dataloader",
    "ignore:.*many workers",
)


def loader(samples: int, seed: int = 0) -> DataLoader:
    return DataLoader(TensorDataset(*task(samples, seed=seed)), batch_size=32)


def trainer(epochs: int, **options) -> lightning.Trainer:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return lightning.Trainer(max_epochs=epochs, accelerator="cpu", **(quiet | options))


def without_dropout() -> ps.GatedNetwork:
    net = network()
    net.origin[3].p = 0.0  # `fit` seeds its random draws in its own way
    return net


@pytest.mark.parametrize(
    "optimizer",
    [ps.OptimizerConfig(0.01, "constant"), ps.OptimizerConfig(0.01), functools.partial(torch.optim.SGD, lr=0.1)],
    ids=["constant", "one-cycle", "factory"],
)
def test_ones_own_trainer_trains_like_fit(optimizer):
    mine, theirs = without_dropout(), without_dropout()
    trainer(3).fit(ps.GatedLightningModule(mine, ps.Objective(), optimizer), loader(256))
    config = ps.FitConfig(epochs=3, progress=False, hardware=ps.Hardware(precision="float32"))
    ps.fit(theirs, loader(256), config=replace(config, optimizer=optimizer))
    torch.testing.assert_close(weights(mine), weights(theirs))
    assert not torch.equal(weights(mine), weights(without_dropout()))


def test_callbacks_can_monitor_every_metric():
    stop = EarlyStopping("val/loss", patience=0, min_delta=1e9)
    module = ps.GatedLightningModule(network())
    own = trainer(9, callbacks=[stop])
    own.fit(module, loader(128), loader(128, seed=1))
    assert own.current_epoch == 2  # the second epoch is not better by a billion
    assert {"val/loss", "val/accuracy", "train/loss", "density/0"} <= own.callback_metrics.keys()
    assert len(module.history.epochs) == 2


def test_a_schedule_needs_a_known_number_of_steps():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TrainingError, match="max_epochs"):
            trainer(-1).fit(ps.GatedLightningModule(network()), loader(64))


def test_nan_in_the_data_changes_no_weights():
    net, (x, y) = network(), task()
    ps.fit(net, (x, y), config=quiet(epochs=1))
    before = weights(net), [buffer.clone() for buffer in net.buffers()]
    x = x.clone()
    x[:] = x.where(torch.arange(len(x)).reshape(-1, *[1] * (x.ndim - 1)) != 3, torch.nan)
    with pytest.raises(TrainingError, match=r"samples \[\d+\] of train batch 0, epoch 1"):
        ps.fit(net, (x, y), config=quiet(epochs=1, batch_size=len(x)))
    assert torch.equal(weights(net), before[0])
    for buffer, old in zip(net.buffers(), before[1], strict=True):
        assert torch.equal(buffer, old) or buffer.ndim == 0  # thresholds are reset when training starts


def test_nan_in_the_input_says_where():
    x, y = task(128)
    x[70, 2] = float("nan")
    with pytest.raises(TrainingError, match=r"samples \[6\] of train batch 1, epoch 1"):
        ps.fit(network(), DataLoader(TensorDataset(x, y), batch_size=64), config=quiet(epochs=1))


def test_a_training_that_diverges_says_so():
    net = network()
    with torch.no_grad():
        net.origin[6].bias[0] = float("inf")
    with pytest.raises(TrainingError, match="diverged"):
        ps.fit(net, task(), config=quiet(epochs=1))


def test_a_gate_that_recovers_is_warned_about_once(monkeypatch):
    """Some gates separate nothing in their first epochs."""
    seen = []

    def collapse(metrics, net):
        seen.append(metrics)
        return [f"gate 0 ('5') separates nothing: its AUC is {len(seen)}"] if len(seen) < 4 else []

    monkeypatch.setattr("penstock.training.module.collapse", collapse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = ps.fit(network(), task(), config=quiet(epochs=5))
    messages = [str(warning.message) for warning in caught if issubclass(warning.category, CollapseWarning)]
    assert messages == ["gate 0 ('5') separates nothing: its AUC is 2"]
    assert history.warnings == []
