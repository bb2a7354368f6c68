"""OptimizerConfig, Hardware and FitConfig: every schedule trains, and invalid values are refused."""

import pytest
import torch

import penstock as ps
from helpers.small_task import network, quiet, task
from penstock.errors import TrainingError

pytestmark = pytest.mark.filterwarnings(  # many trainings here are short
    "ignore::penstock.training.module.CollapseWarning"
)


@pytest.mark.parametrize("wrong", [{"rate": -0.01}, {"rate": 0.0}, {"mask_rate": float("nan")}])
def test_an_invalid_rate_is_refused(wrong):
    with pytest.raises(TrainingError, match="rate"):
        ps.OptimizerConfig(**wrong)


def test_every_schedule_trains():
    for schedule in ("one-cycle", "rise-and-fall", "cosine", "constant"):
        ps.fit(network(), task(), config=quiet(optimizer=ps.OptimizerConfig(0.01, schedule), epochs=1))
    with pytest.raises(TrainingError, match=r"schedule .* 'linear'"):
        ps.fit(network(), task(), config=quiet(optimizer=ps.OptimizerConfig(0.01, "linear"), epochs=1))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"accelerator": "warp"}, "accelerator .* 'warp'"),
        ({"precision": "float16"}, "precision .* 'float16'"),
        ({"workers": -1}, "workers .* -1"),
        ({"devices": 0}, "devices .* 0"),
    ],
)
def test_invalid_hardware_is_refused(options, match):
    with pytest.raises(TrainingError, match=match):
        ps.Hardware(**options)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_an_error():
    with pytest.raises(TrainingError, match="gpu"):
        ps.Hardware(accelerator="gpu")
    assert ps.Hardware(accelerator="auto").device == torch.device("cpu")


def test_the_best_epoch_needs_a_folder():
    with pytest.raises(TrainingError, match="folder"):
        ps.FitConfig(keep="best")


@pytest.mark.parametrize("option", ["epochs", "batch_size"])
def test_counts_are_at_least_one(option):
    with pytest.raises(TrainingError, match=f"{option} .* 0"):
        ps.FitConfig(**{option: 0})
