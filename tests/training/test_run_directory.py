"""The run directory: logs, checkpoints, and which runs it resumes."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import penstock as ps
from helpers.small_task import network, quiet, task, weights
from penstock.errors import TrainingError
from penstock.training.run_directory import FORMAT, RunDirectory

pytestmark = pytest.mark.filterwarnings(  # many trainings here are short
    "ignore::penstock.training.module.CollapseWarning"
)


def test_folder_holds_logs_and_checkpoints(tmp_path):
    history = ps.fit(network(), task(), task(seed=1), config=quiet(epochs=2, batch_size=64, folder=tmp_path / "run"))
    assert history.last == tmp_path / "run" / "last.ckpt"
    assert history.best == tmp_path / "run" / "best.ckpt"
    assert history.last.exists()
    assert history.best.exists()
    with (tmp_path / "run" / "csv" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"train/loss", "train/gate", "train/transmission", "val/accuracy", "density/0"} <= rows[-1].keys()
    assert len(rows) == 2
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))


def test_a_finished_run_is_not_run_again(tmp_path):
    first, again = network(), network(seed=5)
    ps.fit(first, task(), config=quiet(epochs=2, folder=tmp_path))
    history = ps.fit(again, task(), config=quiet(epochs=2, folder=tmp_path))
    assert torch.equal(weights(first), weights(again))
    assert len(history.epochs) == 2
    assert len((tmp_path / "csv" / "metrics.csv").read_text().splitlines()) == 3


def test_another_run_in_the_same_folder_is_refused(tmp_path):
    ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path))
    with pytest.raises(TrainingError, match=r"objective, epochs"):
        ps.fit(network(), task(), objective=ps.Objective(0.1), config=quiet(epochs=2, folder=tmp_path))


def test_a_folder_is_refused_for_other_data_or_other_positives(tmp_path):
    ps.fit(network(positives={1}), task(), config=quiet(epochs=1, folder=tmp_path))
    with pytest.raises(TrainingError, match=r"differs in layers\."):
        ps.fit(network(positives={2}), task(), config=quiet(epochs=1, folder=tmp_path))
    with pytest.raises(TrainingError, match=r"differs in data\."):
        ps.fit(network(positives={1}), task(seed=7), config=quiet(epochs=1, folder=tmp_path))


def test_a_refusal_leaves_the_network_as_it_was(tmp_path):
    ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path))
    net = network()
    guarantee = ps.calibrate(net, task(), max_positive_loss=0.1)
    with pytest.raises(TrainingError, match="epochs"):
        ps.fit(net, task(), config=quiet(epochs=2, folder=tmp_path))
    assert net.guarantee == guarantee


def test_damaged_folders(tmp_path):
    ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path))
    checkpoint = (tmp_path / "last.ckpt").read_bytes()
    (tmp_path / "last.ckpt").write_bytes(checkpoint[:1000])
    with pytest.raises(TrainingError, match=r"last\.ckpt is damaged"):
        ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path))
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(TrainingError, match=r"run\.json"):
        ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path))


@pytest.mark.parametrize("version", [None, FORMAT - 1, FORMAT + 1])
def test_a_run_of_another_format_is_refused(tmp_path, version):
    """Format 1 had no number; the checkpoints of another format cannot be resumed either."""
    run = RunDirectory(tmp_path, validated=False)
    assert run.claim({"epochs": 3}) is None
    run.last.touch()
    assert run.claim({"epochs": 3}) == str(run.last)
    settings = {"epochs": 3} | ({} if version is None else {"format": version})
    (tmp_path / "run.json").write_text(json.dumps(settings))
    with pytest.raises(TrainingError, match=rf"format {FORMAT}.*format {version or 1}"):
        run.claim({"epochs": 3})
    assert json.loads((tmp_path / "run.json").read_text()) == settings


FULL = """
import resource, signal, sys, penstock as ps
sys.path.insert(0, {tests!r})
from helpers.small_task import network, task, quiet
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))
try:
    ps.fit(network(), task(), config=quiet(epochs=1, folder=sys.argv[1]))
except ps.errors.TrainingError as error:
    print(error)
"""


def test_a_full_disk_in_training_says_so(tmp_path):
    """The system lets the process write files of 9,000 bytes and no more: too few for a checkpoint."""
    code = FULL.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert "cannot write" in done.stdout and "File too large" in done.stdout, done.stderr[-2000:]
    assert not (tmp_path / "last.ckpt").exists()


@pytest.mark.parametrize("recorded", [True, False])
def test_a_resumed_run_keeps_the_precision_that_was_decided(tmp_path, monkeypatch, recorded):
    monkeypatch.setattr(ps.Hardware, "bfloat16", lambda self: self.precision != "float32")
    monkeypatch.setattr("penstock.training.fit.bfloat16_is_faster", lambda net, x: recorded)
    auto = ps.Hardware(precision="auto")
    ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path, hardware=auto))
    monkeypatch.setattr("penstock.training.fit.bfloat16_is_faster", lambda net, x: not recorded)
    ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path, hardware=auto))
    assert json.loads((tmp_path / "run.json").read_text())["bfloat16"] is recorded
