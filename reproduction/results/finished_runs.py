"""The finished runs of a results folder, by method and seed: the input of claims, tables and figures.

Results arrive one by one, over hours, so every reader handles missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from reproduction.experiments.methods import Method
from reproduction.experiments.paper_experiments import EXPERIMENTS, PUBLIC_TASKS, Experiment, task_weights
from reproduction.experiments.runs import Run, check_same_data
from reproduction.experiments.tasks import TASKS
from reproduction.sweep.selected_weights import LossWeights

BySeed: TypeAlias = Mapping[int, dict[str, Any]]
"""The results of one method on one task, by seed; unfinished seeds are left out."""


@dataclass(frozen=True)
class FinishedRuns:
    """The results of one profile in a folder."""

    results: Path
    profile: str

    def by_seed(self, task: str, method: Method) -> BySeed:
        """Return the results of a method, by seed."""
        found = {seed: Run(task, method, seed, self.profile).result(self.results) for seed in self.seeds(task)}
        return {seed: result for seed, result in found.items() if result is not None}

    def tasks(self, experiment: Experiment | None = None) -> tuple[str, ...]:
        """Return the tasks of an experiment (default: table 1), and any others it was run on."""
        experiment = experiment or EXPERIMENTS["table1"]
        others = [task for task in TASKS if task not in experiment.tasks]
        return (*experiment.tasks, *(task for task in others if self._any(experiment, task)))

    def check(self) -> None:
        """Check that all results of a task come from the same data.

        Raises:
            DataError: they do not.
        """
        for task in TASKS:
            check_same_data(self.results, self.profile, task)

    def seeds(self, task: str) -> tuple[int, ...]:
        """Return the seeds of the profile."""
        return TASKS[task].budget(self.profile).seeds

    def weights(self, task: str) -> LossWeights:
        """Return α and β for the rows of table 1."""
        return task_weights(self.results, self.profile, task)

    def progress(self, experiment: Experiment) -> tuple[int, int]:
        """Return the number of finished runs of an experiment, and of all its runs."""
        runs = dict.fromkeys(experiment.runs(self.profile, self.tasks(experiment), results=self.results))
        return sum(run.result(self.results) is not None for run in runs), len(runs)

    def _any(self, experiment: Experiment, task: str) -> bool:
        """Return whether a task has a finished run that no other experiment shares."""
        if not (self.results / self.profile / task).is_dir():
            return False
        runs = experiment.runs(self.profile, [task], results=self.results)
        shared = {
            run
            for other in EXPERIMENTS.values()
            if other != experiment and (task in other.tasks or other.name == "table1")
            for run in other.runs(self.profile, [task], results=self.results)
        }
        own = [run for run in runs if run not in shared] or (runs if task not in PUBLIC_TASKS else [])
        return any(run.result(self.results) is not None for run in own)
