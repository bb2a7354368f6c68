"""The command, as a person types it."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from penstock.cli import main
from penstock.cli.arguments import load_data, load_model, select_split
from penstock.errors import DataError

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


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(USER_CODE)
    (folder / "broken.py").write_text(BROKEN_CODE)
    (folder / "unfinished.py").write_text("def network(:\n")
    return folder


def penstock(home, *arguments, code=0):
    env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-c", "from penstock.cli import main; main()", *arguments]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def typed(home, monkeypatch, capsys):
    """The same, in this process: for the many short answers."""

    def run(*arguments, code=0):
        monkeypatch.chdir(home)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        return capsys.readouterr()

    return run


def test_the_whole_way(home, typed):
    mine = ("--model", "mine:network", "--data", "mine:data")
    cuts = json.loads(penstock(home, "cuts", "mine:network", "--shape", "6", "--json").stdout)
    assert [cut["name"] for cut in cuts] == ["0", "1", "2", "3"]
    assert "MACs before" in typed("cuts", "mine:network", "--shape", "6").out
    train = ("train", *mine, "--at", "0.3,0.7", "--beta", "0.05", "--epochs", "6", "--batch-size", "64", "--balance")
    train += ("--mask", "drawn", "--p", "1", "--class-loss-weight", "0.3", "--gate-width", "24")
    train += ("--positives", "left,right", "--positives", "1,2")
    made = json.loads(penstock(home, *train, "--folder", "run", "--out", "net.safetensors", "--json").stdout)
    assert len(made["epochs"]) == 6
    guarantee = penstock(home, "calibrate", "net.safetensors", *mine, "--max-positive-loss", "0.03", "--json")
    assert json.loads(guarantee.stdout)["bound"] <= 0.03
    shown = penstock(
        home, "evaluate", "net.safetensors", *mine, "--plots", "plots", "--out", "e.json", "--ratio", "4"
    ).stdout
    assert "1 : 4" in shown
    assert "95.0% confidence" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for heading in ("activation sparsity", "bytes sent", "neg. corr.", "values kept", "gates open"):
        assert heading in shown, "a heading is not broken at 80 columns"
    assert (home / "plots" / "roc.png").exists()
    e = json.loads(typed("evaluate", "net.safetensors", *mine, "--json").out)
    assert e["accuracy"] > 0.8
    assert [row["name"] for row in e["classes"]] == ["none", "left", "right"]
    assert json.loads((home / "e.json").read_text())["accuracy"] == e["accuracy"]
    _deployed(home, typed, mine, e)


def _deployed(home, typed, mine, evaluation):
    """The way goes on: the bundle, in floats and in 8 bits, run without torch."""
    shown = penstock(home, "export", "net.safetensors", *mine, "--out", "bundle", "--split", "test").stdout
    assert "stage-3.onnx" in shown and "Written: bundle" in shown and max(map(len, shown.splitlines())) <= 80
    made = json.loads(typed("export", "net.safetensors", *mine, "--out", "small", "--int8", "--json").out)
    assert made["manifest"]["precision"] == "int8" and made["manifest"]["guarantee"]["bound"] <= 0.03
    assert abs(made["before"]["accuracy"] - made["after"]["accuracy"]) <= 0.005
    theirs = {}
    exec(USER_CODE, theirs)
    for name, of_test in zip("xy", theirs["data"]()["test"], strict=True):
        np.save(home / f"{name}.npy", of_test.numpy())
    answers = json.loads(penstock(home, "run", "bundle", "x.npy", "--json").stdout)
    names = ["none", "left", "right"]
    right = sum(answer["label"] == names[label] for answer, label in zip(answers, np.load(home / "y.npy"), strict=True))
    assert right / len(answers) == pytest.approx(evaluation["accuracy"])
    assert {(answer["exit_stage"], answer["stopped"]) for answer in answers} >= {(1, True), (3, False)}
    summary = penstock(home, "run", "small", "x.npy", "--each").stdout
    assert "500 samples" in summary and "gate 2 stopped" in summary and "bytes crossed between stages" in summary
    refused = penstock(home, "run", "bundle", "y.npy", code=1).stderr
    assert "expected input (batch, 6) float32, got (500,) int64" in refused


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("cuts", "mine", "--shape", "6"), "'mine': expected package.module:function"),
        (("cuts", "nothere:net", "--shape", "6"), "no module 'nothere'"),
        (("cuts", "mine:net", "--shape", "6"), "mine has no 'net'"),
        (("cuts", ".mine:network", "--shape", "6"), "'.mine:network': expected package.module"),
        (
            ("cuts", "mine:draw", "--shape", "6"),
            "'mine:draw' takes arguments: draw(seed, n)",
        ),
        (("cuts", "mine:Net", "--shape", "6"), "'mine:Net' takes arguments: Net(in_features: int, "),
        (
            ("cuts", "broken:network", "--shape", "6"),
            "AttributeError: module 'math' has no attribute 'tau_and_a_half' (broken.py, line 7)",
        ),
        (
            ("cuts", "unfinished:network", "--shape", "6"),
            "SyntaxError: invalid syntax (unfinished.py, line 1)",
        ),
        (("cuts", "mine:number", "--shape", "6"), "got int"),
        (("cuts", "mine:network", "--shape", "six"), "--shape six --dtype float32"),
        (("cuts", "mine:network", "--shape", "7"), "got (1, 7)"),
        (
            ("evaluate", "no.safetensors", "-m", "mine:network", "-d", "mine:data"),
            "StorageError: there is no file no.safetensors",
        ),
        (("train", "-m", "mine:network", "-d", "mine:no_train", "-o", "x"), "'mine:no_train' has no 'train'"),
        (
            ("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--positives", "left,up"),
            "--positives left,up",
        ),
        (
            ("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--positives", "1", "--positives", "2"),
            "positives must be one set of labels, or one for each of the 1 gates, got 2",
        ),
        (
            ("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--background", "3"),
            "background must be a class of the network, 0 … 2, got 3",
        ),
        (
            (
                "train",
                "-m",
                "mine:network",
                "-d",
                "mine:data",
                "-o",
                "x",
                "--parts",
                "compression",
                "--class-loss-weight=1",
            ),
            "LayerError: class_loss_weight",
        ),
        (
            ("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--class-loss-weight", "-1"),
            "class_loss_weight must be",
        ),
        (("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--alpha", "1"), "Σα must be below 1, got 1"),
        (
            ("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--at", "layer1"),
            "--at layer1",
        ),
        (("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", "--at", "9"), "two gates at one place"),
    ],
)
def test_refusals_are_one_line_and_exit_with_1(typed, arguments, text):
    done = typed(*arguments, code=1)
    assert text in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize("option", ["--parts", "--granularity", "--mask", "--gate-input"])
def test_an_unknown_layer_option_is_a_usage_error(typed, option):
    done = typed("train", "-m", "mine:network", "-d", "mine:data", "-o", "x", option, "none", code=2)
    assert option in done.err and "none" in done.err


def test_an_error_inside_a_function_stays_what_it_is(home, monkeypatch):
    """It is no matter of the name: whoever wrote the function wants to see where it comes from."""
    (home / "fails.py").write_text("def network():\n    return len(5)\n")
    monkeypatch.syspath_prepend(home)
    with pytest.raises(TypeError, match="object of type 'int' has no len"):
        load_model("fails:network")


@pytest.mark.parametrize("split", ["validation", "tset"])
def test_a_part_that_is_none_is_no_part(split):
    sets = {"train": 1, "validation": None, "test": 2, "class_names": ["a", "b"]}
    with pytest.raises(DataError, match=rf"'{split}', only train, test"):
        select_split(sets, split)
    assert select_split(sets, "test") == 2


def test_data_whose_train_is_none_has_no_train(home, monkeypatch):
    (home / "empty.py").write_text("def data():\n    return {'train': None, 'test': 1}\n")
    monkeypatch.syspath_prepend(home)
    with pytest.raises(DataError, match="'empty:data' has no 'train'"):
        load_data("empty:data")


def test_a_refusal_as_a_person_sees_it(home):
    done = penstock(home, "cuts", "mine:network", "--shape", "7", code=1)
    assert done.stderr.startswith("error: ShapeError: ") and "(1, 7)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("evaluat",), "'evaluate'"),
        (("isalnd",), "'island'"),
        (("wakeword", "trian"), "'train'"),
        (("cuts", "mine:network", "--shap", "6"), "--shape"),
        (("wakeword", "train", "--max-mis-rate", "0.1"), "--max-miss-rate"),
    ],
)
def test_a_mistyped_command_or_option_names_the_near_ones(typed, arguments, near):
    assert near in typed(*arguments, code=2).err


def test_a_missing_option_is_a_usage_error(typed):
    assert "--shape" in typed("cuts", "mine:network", code=2).err


COMMANDS = [
    "cuts",
    "train",
    "calibrate",
    "evaluate",
    "export",
    "run",
    "listen",
    "island",
    "up",
    "certs",
    "serve",
    "wakeword",
    "data",
    "demo",
]


def test_commands_are_listed_in_the_order_of_use(typed):
    lines = [line.strip("│ ").split() for line in typed("--help").out.splitlines()]
    assert [words[0] for words in lines if words and words[0] in COMMANDS] == COMMANDS
    groups = [line.strip("│ ").split() for line in typed("wakeword", "--help").out.splitlines()]
    assert [words[0] for words in groups if words and words[0] in ("train", "evaluate")] == ["train", "evaluate"]


@pytest.mark.parametrize(
    "command", [(), ("train",), ("evaluate",), ("export",), ("wakeword", "train"), ("wakeword", "evaluate")]
)
def test_help_is_readable_at_80_columns(home, command):
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    code = [sys.executable, "-c", "from penstock.cli import main; main()", *command, "--help"]
    text = subprocess.run(code, cwd=home, env=env, capture_output=True, text=True, timeout=200, check=True).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, "nothing is cut off"
    assert text.index("Example: penstock") < text.index("Options")


def test_help_teaches(typed):
    text = typed("--help").out
    for command in (
        "cuts",
        "train",
        "calibrate",
        "evaluate",
        "export",
        "run",
        "island",
        "serve",
        "up",
        "certs",
        "demo",
    ):
        assert command in text
        assert len(typed(command, "--help").out) > 400
    for command in ("list", "fetch", "check"):
        assert command in typed("data", "--help").out
        assert "Example: penstock data" in typed("data", command, "--help").out


def test_data_sets_are_listed(typed, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    text = typed("data", "list").out
    assert max(map(len, text.splitlines())) <= 100
    assert "`penstock data fetch speech-commands-v0.02`" in text
    rows = {row["name"]: row for row in json.loads(typed("data", "list", "--json").out)}
    assert rows["speech-commands-v0.02"]["found"] is None
    assert rows["speech-commands-v0.02"]["licence"] == "CC BY 4.0"


@pytest.mark.skipif(find_spec("seglearn") is None, reason="needs the wrist data: pip install --no-deps seglearn")
def test_a_data_set_is_fetched_and_checked(typed, tmp_path):
    assert typed("data", "fetch", "wrist").out.endswith("watch_dataset.npy\n")
    assert "wrist is complete: train 5,293, validation 2,000, test 1,983." in typed("data", "check", "wrist").out
    checked = json.loads(typed("data", "check", "wrist", "--json").out)
    assert checked["samples"] == {"train": 5293, "validation": 2000, "test": 1983}
    refused = typed("data", "check", "wrist", "--folder", str(tmp_path), code=1)
    assert "wrist not found" in refused.err
    assert "unknown data set 'mnist'" in typed("data", "fetch", "mnist", code=1).err
