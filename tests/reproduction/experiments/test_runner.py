"""A run is computed once, by one process, and resumes where it was interrupted."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from penstock.errors import DataError, StorageError
from penstock.runtime.locks import try_lock
from penstock.training.module import GatedLightningModule
from reproduction.experiments import runner as runner_module
from reproduction.experiments import tasks
from reproduction.experiments.execute import execute_runs
from reproduction.experiments.methods import (
    GC,
    Baseline,
    C,
    G,
    GateInput,
)
from reproduction.experiments.runner import Runner, build, compute
from reproduction.experiments.runs import Run


def test_only_what_is_compressed_counts_for_sparsity() -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    for method in (GateInput(2, 0.5, 0.3), GC(0.5, 0.3), C(0.3)):
        net = build(Run("tones", method, 0), data)
        for layer in net.layers:
            if layer.compression is not None:
                layer.compression.phi.data.fill_(0.0)
        assert runner_module._sparsity(net) == 1
    assert runner_module._sparsity(build(Run("tones", G(0.5), 0), data)) == 0


def test_data_is_given_for_tasks_that_there_are(tmp_path) -> None:
    with pytest.raises(DataError, match=r"cifar.* fashion-mnist"):
        Runner(tmp_path, (("cifar", tmp_path),))
    words = Runner(tmp_path, (("speech-commands", tmp_path / "words"),))
    with pytest.raises(DataError, match=r"words"):  # where the wake word is looked for, too
        words.splits(Run("wake-word", Baseline(), 0))


def test_a_place_that_cannot_be_written_is_said(tmp_path) -> None:
    (tmp_path / "results").write_text("a file where a folder should be")
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    with pytest.raises(StorageError, match=r"seed-0\.lock"):
        runner.execute(Run("tones", Baseline(), 0))


def test_the_same_run_gives_the_same_result(tmp_path) -> None:
    data = tasks.TASKS["tones"].data(None, "lite")
    once, again = (compute(Run("tones", GC(0.5, 0.3), 1), data) for _ in range(2))
    once.pop("seconds"), again.pop("seconds")
    assert once == again


def _hold(lock: Path, ready) -> None:
    with try_lock(lock) as mine:
        ready.put(mine)
        time.sleep(60)


def test_a_run_that_another_process_computes_is_left_to_it_until_it_dies(tmp_path) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    run = Run("tones", Baseline(), 0)
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    other = context.Process(target=_hold, args=(tmp_path / "results" / ".locks" / f"{run.key}.lock", ready))
    other.start()
    assert ready.get(timeout=60)
    assert runner.execute(run) is None

    def kill(_: float) -> None:
        os.kill(other.pid, signal.SIGKILL)
        other.join()

    assert execute_runs(runner, [run], progress=False, wait=kill)[0]["run"]["seed"] == 0


class Interrupted(Exception):
    pass


def test_an_interrupted_run_resumes_from_its_last_epoch(tmp_path, monkeypatch) -> None:
    run, steps = Run("tones", GC(0.5, 0.3), 0), []
    step = GatedLightningModule.training_step

    def count_steps(self, batch, index):
        if len(steps) == interrupt_at:
            raise Interrupted
        steps.append(index)
        return step(self, batch, index)

    monkeypatch.setattr(GatedLightningModule, "training_step", count_steps)
    interrupt_at = None
    uninterrupted = Runner(tmp_path / "uninterrupted", work=tmp_path / "work-uninterrupted").execute(run)
    total = len(steps)
    per_epoch = total // 2
    steps.clear()
    interrupt_at = per_epoch + 1  # within the second of two epochs
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    with pytest.raises(Interrupted):
        runner.execute(run)
    assert run.result(runner.results) is None
    steps.clear()
    interrupt_at = None
    resumed = runner.execute(run)
    assert len(steps) == total - per_epoch > 0, "the first epoch is not computed again, the second is"
    assert {**resumed, "seconds": 0} == {**uninterrupted, "seconds": 0}
