"""All commands in the order of use: cuts, train, calibrate, evaluate, export, run."""

import json
import os

import numpy as np
import pytest

from helpers.commands import penstock as run_penstock
from penstock.cli.arguments import load_data


def penstock(home, *arguments, code=0):
    env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "80", "NO_COLOR": "1"}
    done = run_penstock(*arguments, cwd=home, env=env, text=True, timeout=200)
    assert done.returncode == code, done.stderr
    return done


def test_from_cuts_to_a_bundle(home, typed):
    mine = ("--model", "mine:network", "--data", "mine:data")
    cuts = json.loads(penstock(home, "cuts", "mine:network", "--shape", "6", "--json").stdout)
    assert [cut["name"] for cut in cuts] == ["0", "1", "2", "3"]
    assert "MACs before" in typed("cuts", "mine:network", "--shape", "6").out
    train = ("train", *mine, "--at", "0.3,0.7", "--beta", "0.05", "--epochs", "6", "--batch-size", "64", "--balance")
    train += ("--mask", "drawn", "--p", "1", "--class-loss-weight", "0.3", "--gate-width", "24")
    train += ("--positives", "left,right", "--positives", "1,2")
    made = json.loads(penstock(home, *train, "--folder", "run", "--out", "net.safetensors", "--json").stdout)
    assert len(made["epochs"]) == 6
    guarantee = typed("calibrate", "net.safetensors", *mine, "--max-positive-loss", "0.03", "--json")
    assert json.loads(guarantee.out)["bound"] <= 0.03
    plots = ("--plots", "plots", "--out", "e.json", "--ratio", "4")
    shown = typed("evaluate", "net.safetensors", *mine, *plots, columns=80).out
    assert "1 : 4" in shown
    assert "95.0% confidence" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for heading in ("activation sparsity", "bytes sent", "neg. corr.", "values kept", "gates open"):
        assert heading in shown, "a heading is not broken at 80 columns"
    assert (home / "plots" / "roc.png").exists()
    evaluation = json.loads(typed("evaluate", "net.safetensors", *mine, "--json").out)
    assert evaluation["accuracy"] > 0.8
    assert [row["name"] for row in evaluation["classes"]] == ["none", "left", "right"]
    assert json.loads((home / "e.json").read_text())["accuracy"] == evaluation["accuracy"]
    _export_and_run(home, typed, mine, evaluation)


def _export_and_run(home, typed, mine, evaluation):
    """Export a float and an int8 bundle, and run them without torch."""
    shown = typed("export", "net.safetensors", *mine, "--out", "bundle", "--split", "test", columns=80).out
    assert "stage-3.onnx" in shown and "Written: bundle" in shown and max(map(len, shown.splitlines())) <= 80
    made = json.loads(typed("export", "net.safetensors", *mine, "--out", "small", "--int8", "--json").out)
    assert made["manifest"]["precision"] == "int8" and made["manifest"]["guarantee"]["bound"] <= 0.03
    assert abs(made["before"]["accuracy"] - made["after"]["accuracy"]) <= 0.005
    splits = load_data("mine:data")
    for name, part in zip("xy", splits["test"], strict=True):
        np.save(home / f"{name}.npy", part.numpy())
    answers = json.loads(penstock(home, "run", "bundle", "x.npy", "--json").stdout)
    names = ["none", "left", "right"]
    right = sum(answer["label"] == names[label] for answer, label in zip(answers, np.load(home / "y.npy"), strict=True))
    assert right / len(answers) == pytest.approx(evaluation["accuracy"])
    assert {(answer["exit_stage"], answer["stopped"]) for answer in answers} >= {(1, True), (3, False)}
    summary = penstock(home, "run", "small", "x.npy", "--each").stdout
    assert "500 samples" in summary and "gate 2 stopped" in summary and "bytes crossed between stages" in summary
    error = typed("run", "bundle", "y.npy", code=1).err
    assert "expected input (batch, 6) float32, got (500,) int64" in error
