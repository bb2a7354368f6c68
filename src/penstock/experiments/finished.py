"""The finished runs of a folder, by method and seed: what claims, figures and pages are made of.

Results come one by one, over hours. Whoever reads them takes what is there, and says how much that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from penstock.experiments.chosen import Weights
from penstock.experiments.methods import Method
from penstock.experiments.paper import Experiment, weights_of
from penstock.experiments.problems import PROBLEMS
from penstock.experiments.runs import Run

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

    def seeds(self, problem: str) -> tuple[int, ...]:
        """Return the seeds that are asked for."""
        return PROBLEMS[problem].budget(self.profile).seeds

    def weights(self, problem: str) -> Weights:
        """Return α and β of the rows of table 1."""
        return weights_of(self.results, self.profile, problem)

    def progress(self, experiment: Experiment) -> tuple[int, int]:
        """Return how many runs of an experiment are done, and how many it has."""
        runs = dict.fromkeys(experiment.runs(self.profile, results=self.results))
        return sum(run.result(self.results) is not None for run in runs), len(runs)
