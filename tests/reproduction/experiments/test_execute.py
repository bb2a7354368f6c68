"""Runs of an experiment: finished ones are skipped, failed ones do not stop the others."""

from dataclasses import replace

import pytest

from penstock.errors import DataError, TrainingError
from penstock.training.module import GatedLightningModule
from reproduction.experiments import runner as runner_module
from reproduction.experiments import tasks
from reproduction.experiments.execute import Clock, execute_runs
from reproduction.experiments.methods import (
    GC,
    Baseline,
)
from reproduction.experiments.runner import Runner, compute
from reproduction.experiments.runs import Run


def test_a_finished_run_is_never_computed_again(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    runs = [Run("tones", Baseline(), seed) for seed in (0, 1)]
    first = execute_runs(runner, runs, progress=False)
    monkeypatch.setattr(runner_module, "compute", lambda *_, **__: pytest.fail("computed again"))
    assert execute_runs(runner, runs, progress=False) == first
    assert sorted(path.name for path in (tmp_path / "results").rglob("*.json")) == ["seed-0.json", "seed-1.json"]
    assert not list((tmp_path / "work").rglob("*.ckpt"))


def test_missing_data_is_said_before_the_first_run(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", (("speech-commands", tmp_path / "nowhere"),), tmp_path / "work")
    monkeypatch.setattr(runner_module, "compute", lambda *_, **__: pytest.fail("hours went by"))
    with pytest.raises(DataError, match="nowhere"):
        execute_runs(runner, [Run("tones", Baseline(), 0), Run("wake-word", Baseline(), 0)], progress=False)


def test_more_seeds_take_the_results_that_are_there(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    (before,) = execute_runs(runner, [Run("tones", Baseline(), 0)], progress=False)
    task = tasks.TASKS["tones"]
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, lite=replace(task.lite, seeds=(0, 1, 2, 3))))
    assert Run("tones", Baseline(), 0).result(runner.results) == before


def test_a_sweep_does_not_test_and_a_table_does_not_train_again(tmp_path, monkeypatch) -> None:
    runner, run = Runner(tmp_path / "results", work=tmp_path / "work"), Run("tones", GC(0.5, 0.3), 0)
    (validated,) = execute_runs(runner, [run], progress=False, test=False)
    assert "test" not in validated and run.result(runner.results) is None
    assert run.result(runner.results, tested=False) == validated
    at_once = compute(run, tasks.TASKS["tones"].data(None, "lite"))
    trained = []
    step = GatedLightningModule.training_step
    monkeypatch.setattr(GatedLightningModule, "training_step", lambda *batch: trained.append(1) or step(*batch))
    (tested,) = execute_runs(runner, [run], progress=False)
    assert not trained
    assert {**tested, "seconds": 0} == {**at_once, "seconds": 0} and tested["seconds"] == validated["seconds"]
    assert not list((tmp_path / "work").rglob("*.ckpt"))
    assert execute_runs(runner, [run], progress=False, test=False) == [tested]


def test_a_training_that_fails_does_not_stop_the_others(tmp_path, monkeypatch) -> None:
    runner, runs = (
        Runner(tmp_path / "results", work=tmp_path / "work"),
        [Run("tones", Baseline(), seed) for seed in (0, 1, 2)],
    )
    train = Baseline.train

    def diverge(self, net, data, masks, config):
        if config.seed == 0:
            raise TrainingError("the loss is nan")
        return train(self, net, data, masks, config)

    monkeypatch.setattr(Baseline, "train", diverge)
    with pytest.raises(TrainingError, match=r"1 of 3 .*seed 0: .*nan"):
        execute_runs(runner, runs, progress=False)
    assert [run.result(runner.results) is None for run in runs] == [True, False, False]


def test_the_clock_counts_by_task() -> None:
    clock, run = Clock(), Run("tones", Baseline(), 0)
    clock.note(run, 60)
    assert clock.left([run] * 3) == "about 3 min left"
    assert clock.left([replace(run, task="other")] * 90) == "about 1 h 30 min left"
