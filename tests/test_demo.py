"""The demo, with fewer epochs than a person sees."""

import importlib.util
import json
import shlex
from pathlib import Path

import pytest

from helpers.commands import penstock
from penstock import demo
from penstock.gating.tables import render

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("seglearn") is None, reason="needs the data in seglearn: make .venv/demo"
    ),
    pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning"),
]


@pytest.mark.slow
def test_it_compares_the_plain_and_the_gated_network(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "EPOCHS", 2)
    monkeypatch.chdir(tmp_path)
    result = demo.run(Path("demo"), progress=False)
    text = render(*result.tables())
    for line in (
        "accuracy",
        "early stopping",
        "activation sparsity",
        "positives lost",
        "MACs a sample at 1:9",
        "bytes",
        "time",
    ):
        assert line in text
    assert max(map(len, text.splitlines())) <= 100
    for name in ("roc.png", "gate-scores.png", "mask.png", "network.safetensors", "demo.json"):
        assert (tmp_path / "demo" / name).stat().st_size > 500
    for command in text.split("Deploy it:")[1].replace("\\\n", "").strip().splitlines():
        done = penstock(*shlex.split(command)[1:])
        assert done.returncode == 0, done.stderr
    assert b"20 samples" in done.stdout
    saved = json.loads((tmp_path / "demo" / "demo.json").read_text())
    assert saved["gated"]["macs"] < saved["plain"]["macs"]
    assert saved["gated"]["payload_bytes"] < saved["plain"]["payload_bytes"]


def test_no_window_is_calibrated_on_and_tested_on_and_none_overlap():
    from penstock.datasets.wrist import STEP, WINDOW, wrist

    data = wrist()
    held_out, test, live = demo._unseen_people(data.validation, data.test)
    assert abs(len(held_out.x) - len(test.x)) < 40
    starts = demo._number_in_recording(data.test.recording) * STEP
    turn = demo._number_in_recording(data.test.recording) % (2 * WINDOW // STEP)
    calibrated, tested = starts[turn == 0], starts[turn == WINDOW // STEP]
    assert (calibrated % (2 * WINDOW) == 0).all()
    assert (tested % (2 * WINDOW) == WINDOW).all()
    assert len(live.x) + len(held_out.x) == len(data.validation.x) + len(data.test.x)
