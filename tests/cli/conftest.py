"""A user's own module with networks and data, and the command in this process."""

import sys

import pytest

from penstock.cli import main

USER_CODE = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))

def draw(seed, n):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, torch.where(x[:, 0] < 0, 0, 1 + (x[:, 1] > 0).long())

def data():
    parts = {"train": draw(0, 1500), "validation": draw(1, 1000), "test": draw(2, 500)}
    return parts | {"class_names": ["none", "left", "right"]}

def no_train():
    return {"test": draw(2, 5)}

number = 5

class Net(nn.Linear):
    pass
"""

BROKEN_CODE = """
import math

def network():
    return None

size = math.tau_and_a_half
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A working directory with modules `mine`, `broken` and `unfinished`."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(USER_CODE)
    (folder / "broken.py").write_text(BROKEN_CODE)
    (folder / "unfinished.py").write_text("def network(:\n")
    return folder


@pytest.fixture
def typed(home, monkeypatch, capsys):
    """Run `penstock` in this process, which is faster than in one of its own; return what it printed."""

    def run(*arguments, code=0, columns=100):
        monkeypatch.chdir(home)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def error_of(typed):
    """Run a command that fails; return its error, which is one line without a traceback."""

    def run(*arguments):
        done = typed(*arguments, code=1)
        assert "Traceback" not in done.err and len(done.err.splitlines()) == 1
        assert done.out == ""
        return done.err

    return run
