"""Result files are read, checked against the run they belong to, and never mixed."""

import json
from dataclasses import replace

import pytest

from helpers.tones import tones
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from reproduction.experiments import runner as runner_module
from reproduction.experiments import tasks
from reproduction.experiments.execute import execute_runs
from reproduction.experiments.methods import (
    Baseline,
)
from reproduction.experiments.runner import Runner
from reproduction.experiments.runs import Run, check_same_data


def test_what_is_no_result_is_said_to_be_none(tmp_path) -> None:
    run = Run("tones", Baseline(), 0)
    file = tmp_path / f"{run.key}.json"
    file.parent.mkdir(parents=True)
    for text in ("{}", "[1]", "no JSON"):
        file.write_text(text)
        with pytest.raises(DataError, match=r"seed-0\.json"):
            run.result(tmp_path)


def test_results_of_another_budget_are_not_taken(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    run = Run("tones", Baseline(), 0)
    execute_runs(runner, [run], progress=False)
    task = tasks.TASKS["tones"]
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, lite=replace(task.lite, epochs=3)))
    with pytest.raises(DataError, match=r"seed-0\.json .*epochs.* 2.* 3"):
        execute_runs(runner, [run], progress=False)


def test_results_of_other_data_are_not_mixed(tmp_path, monkeypatch) -> None:
    runner = Runner(tmp_path / "results", work=tmp_path / "work")
    execute_runs(runner, [Run("tones", Baseline(), 0)], progress=False)
    task = tasks.TASKS["tones"]
    other = Splits(tones(384, 0), tones(300, 5), ("background", "low", "high"))
    monkeypatch.setitem(tasks.TASKS, "tones", replace(task, read=lambda *_: other))
    runner_module._read.cache_clear()
    with pytest.raises(DataError, match=r"seed-0\.json.*test\b"):
        execute_runs(runner, [Run("tones", Baseline(), 1)], progress=False)
    given = Runner(runner.results, (("tones", tmp_path),), runner.work)
    with pytest.raises(DataError, match=r"seed-0\.json"):  # though nothing is left to compute
        execute_runs(given, [Run("tones", Baseline(), 0)], progress=False)
    execute_runs(Runner(tmp_path / "elsewhere", work=runner.work), [Run("tones", Baseline(), 1)], progress=False)
    merged = (tmp_path / "elsewhere" / "lite").rename(tmp_path / "more")
    (merged / "tones" / "Baseline" / "seed-1.json").rename(tmp_path / "results/lite/tones/Baseline/seed-1.json")
    with pytest.raises(DataError, match=r"seed-1\.json.*seed-0\.json"):
        check_same_data(tmp_path / "results", "lite", "tones")


def test_a_newer_or_poorer_result_is_refused(tmp_path) -> None:
    runner, run = Runner(tmp_path, work=tmp_path / "work"), Run("tones", Baseline(), 0)
    (result,) = execute_runs(runner, [run], progress=False)
    file = tmp_path / f"{run.key}.json"
    file.write_text(json.dumps(result | {"format": 99}))
    with pytest.raises(DataError, match="format 99"):
        run.result(tmp_path)
    file.write_text(json.dumps({name: value for name, value in result.items() if name != "layers"}))
    with pytest.raises(DataError, match=r"seed-0\.json.*layers"):
        run.result(tmp_path)


def test_a_damaged_result_is_said_and_not_overwritten(tmp_path) -> None:
    run = Run("tones", Baseline(), 0)
    file = tmp_path / f"{run.key}.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.raises(DataError, match=r"seed-0\.json"):
        execute_runs(Runner(tmp_path, work=tmp_path / "work"), [run], progress=False)
    assert file.read_text() == "{"
