"""GatedLightningModule: in a Trainer of one's own it learns what `fit` learns."""

import functools
import warnings

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset

import penstock as ps
from helpers.small_task import network, task, weights
from penstock.errors import TrainingError

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
    ps.fit(theirs, loader(256), optimizer=optimizer, config=config)
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
