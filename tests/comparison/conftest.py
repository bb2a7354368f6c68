"""One comparison of all contestants that several tests look at: obvious classes, two seeds, nothing exported."""

import warnings

import pytest

from helpers.comparison_task import PARTS, config, network
from penstock.comparison import run
from penstock.comparison.compare import compare
from penstock.training.module import CollapseWarning


def no_export(net, example, folder):
    return "exported by no one"


@pytest.fixture(autouse=True)
def nothing_exported(monkeypatch):
    """Leave out exports, which take seconds each: tests/cli has one with them."""
    monkeypatch.setattr(run, "export_or_reason", no_export)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished comparison and its folder."""
    folder = tmp_path_factory.mktemp("comparison")
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # of gates after two epochs
        patched.setattr(run, "export_or_reason", no_export)
        return compare(network, *PARTS, config=config(folder, seeds=2)), folder
