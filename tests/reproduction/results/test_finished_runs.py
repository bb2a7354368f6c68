"""The committed results are found, read and current: nothing of them would be computed again."""

import json
from pathlib import Path

import pytest

from reproduction.experiments import methods
from reproduction.experiments.execute import execute_runs
from reproduction.experiments.paper_experiments import EXPERIMENTS, PUBLIC_TASKS
from reproduction.experiments.runner import Runner
from reproduction.experiments.runs import Run
from reproduction.results.finished_runs import FinishedRuns
from reproduction.sweep.sweep import SweepConfig

RESULTS = Path(__file__).parents[3] / "results"


def committed_run(file: Path) -> Run:
    """Return the run that a result file belongs to."""
    described = json.loads(file.read_text())["run"]
    settings = {
        name: tuple(value) if isinstance(value, list) else value for name, value in described["settings"].items()
    }
    method = getattr(methods, described["method"])(**settings)
    return Run(described["problem"], method, described["seed"], described["profile"])


def test_every_committed_result_is_current() -> None:
    files = sorted(RESULTS.glob("*/*/*/seed-*.json"))
    assert len(files) > 250
    for file in files:
        run = committed_run(file)
        assert RESULTS / f"{run.key}.json" == file
        assert run.result(RESULTS, tested=False) is not None


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_complete(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    finished, total = FinishedRuns(RESULTS, "lite").progress(EXPERIMENTS[name])
    assert finished == total > 0
    monkeypatch.setattr(Runner, "splits", lambda *_: pytest.fail("a finished run needs no data"))
    runs = EXPERIMENTS[name].runs("lite", results=RESULTS)
    assert len(execute_runs(Runner(RESULTS), runs, progress=False)) == len(runs)


@pytest.mark.parametrize("task", PUBLIC_TASKS)
def test_the_committed_sweep_is_continued(task: str) -> None:
    entries = [json.loads(line) for line in (RESULTS / "sweep.log").read_text().splitlines()]
    assert SweepConfig(task).study_name in {entry.get("study_name") for entry in entries}
