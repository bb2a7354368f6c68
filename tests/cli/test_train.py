"""`penstock train`: wrong options."""

import pytest
import torch

import penstock as ps
from helpers.missing_packages import hide_package
from penstock.cli.arguments import load_model

MINE = ("-m", "mine:network", "-d", "mine:data", "-o", "x")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--positives", "left,up"), "--positives left,up"),
        (("--positives", "1", "--positives", "2"), "each of the 1 gates, got 2"),
        (("--background", "3"), "0 … 2, got 3"),
        (("--parts", "compression", "--class-loss-weight=1"), "LayerError: class_loss_weight"),
        (("--class-loss-weight", "-1"), "class_loss_weight must be"),
        (("--alpha", "1"), "Σα must be below 1, got 1"),
        (("--at", "layer1"), "--at layer1"),
        (("--teacher", "mine:number"), "expected a torch.nn.Module, got int"),
        (("--teacher", "mine:Net5"), "'Net5'"),
        (("--at", "9"), "two gates at one place"),
    ],
)
def test_a_wrong_option_is_an_error(error_of, options, text):
    assert text in error_of("train", *MINE, *options)


def test_a_folder_as_the_output_file_is_an_error(error_of, tmp_path):
    error = error_of("train", "-m", "mine:network", "-d", "mine:data", "-o", str(tmp_path))
    assert "StorageError" in error and str(tmp_path) in error


@pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")  # this teacher knows nothing
def test_gates_alone_are_trained_with_a_teacher_and_the_network_stays_as_it_was(typed, home):
    options = ("--train-only", "gates", "--teacher", "mine:network", "--epochs", "1", "--json")
    typed("train", *MINE[:-1], "gates", *options)
    net = ps.load(home / "gates", load_model("mine:network"))
    torch.manual_seed(0)  # as the command did before the network drew its weights
    for name, weights in load_model("mine:network").state_dict().items():
        assert torch.equal(ps.ungate(net).state_dict()[name], weights)


def test_without_lightning_the_error_names_the_extra(error_of, monkeypatch):
    hide_package(monkeypatch, "lightning", users="penstock.training.")
    error = error_of("train", *MINE)
    assert "MissingExtraError: lightning" in error and "penstock[train]" in error


@pytest.mark.parametrize("option", ["--parts", "--granularity", "--mask", "--gate-input"])
def test_an_unknown_layer_option_is_a_usage_error(typed, option):
    done = typed("train", *MINE, option, "none", code=2)
    assert option in done.err and "none" in done.err
