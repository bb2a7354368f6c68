"""The finished runs of a folder, by method and seed: what claims, figures and pages are made of.

Results come one by one, over hours. Whoever reads them takes what is there, and says how much that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from reproduction.experiments.methods import Method
from reproduction.experiments.paper import EXPERIMENTS, HERE, Experiment, weights_of
from reproduction.experiments.runs import Run, check_same_data
from reproduction.experiments.tasks import TASKS
from reproduction.sweep.chosen import Weights

BySeed: TypeAlias = Mapping[int, dict[str, Any]]
"""The results of one method on one problem; seeds that are not computed yet are left out."""


@dataclass(frozen=True)
class Finished:
    """A folder of results, seen through one profile."""

    results: Path
    profile: str

    def of(self, problem: str, method: Method) -> BySeed:
        """Return the results of a method, by seed."""
        found = {seed: Run(problem, method, seed, self.profile).result(self.results) for seed in self.seeds(problem)}
        return {seed: result for seed, result in found.items() if result is not None}

    def problems(self, experiment: Experiment | None = None) -> tuple[str, ...]:
        """Return the problems of an experiment (by default of table 1), and what else it was run on."""
        experiment = experiment or EXPERIMENTS["table1"]
        others = [problem for problem in TASKS if problem not in experiment.problems]
        return (*experiment.problems, *(problem for problem in others if self._any(experiment, problem)))

    def check(self) -> None:
        """See that all results of a problem were made from the same data.

        Raises:
            DataError: when they were not.
        """
        for problem in TASKS:
            check_same_data(self.results, self.profile, problem)

    def seeds(self, problem: str) -> tuple[int, ...]:
        """Return the seeds that are asked for."""
        return TASKS[problem].budget(self.profile).seeds

    def weights(self, problem: str) -> Weights:
        """Return α and β of the rows of table 1."""
        return weights_of(self.results, self.profile, problem)

    def progress(self, experiment: Experiment) -> tuple[int, int]:
        """Return how many runs of an experiment are done, and how many it has."""
        runs = dict.fromkeys(experiment.runs(self.profile, self.problems(experiment), results=self.results))
        return sum(run.result(self.results) is not None for run in runs), len(runs)

    def _any(self, experiment: Experiment, problem: str) -> bool:
        """Say whether a problem has a finished run of an experiment, other than what it shares with others."""
        if not (self.results / self.profile / problem).is_dir():
            return False
        runs = experiment.runs(self.profile, [problem], results=self.results)
        shared = {
            run
            for other in EXPERIMENTS.values()
            if other != experiment and (problem in other.problems or other.name == "table1")
            for run in other.runs(self.profile, [problem], results=self.results)
        }
        own = [run for run in runs if run not in shared] or (runs if problem not in HERE else [])
        return any(run.result(self.results) is not None for run in own)
