"""`penstock train`: wrong options."""

import pytest

from helpers.missing_packages import hide_package

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
        (("--at", "9"), "two gates at one place"),
    ],
)
def test_a_wrong_option_is_an_error(error_of, options, text):
    assert text in error_of("train", *MINE, *options)


def test_a_folder_as_the_output_file_is_an_error(error_of, tmp_path):
    error = error_of("train", "-m", "mine:network", "-d", "mine:data", "-o", str(tmp_path))
    assert "StorageError" in error and str(tmp_path) in error


def test_without_lightning_the_error_names_the_extra(error_of, monkeypatch):
    hide_package(monkeypatch, "lightning", users="penstock.training.")
    error = error_of("train", *MINE)
    assert "MissingExtraError: lightning" in error and "penstock[train]" in error


@pytest.mark.parametrize("option", ["--parts", "--granularity", "--mask", "--gate-input"])
def test_an_unknown_layer_option_is_a_usage_error(typed, option):
    done = typed("train", *MINE, option, "none", code=2)
    assert option in done.err and "none" in done.err
