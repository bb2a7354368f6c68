"""Execute the runs of an experiment: compute the missing ones, with a progress bar and the time left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.errors import TrainingError
from reproduction.experiments.methods import method_key
from reproduction.experiments.runner import Runner
from reproduction.experiments.runs import Run

PATIENCE_S = 5.0
"""Seconds between two checks of runs that another process computes."""


def execute_runs(
    runner: Runner,
    runs: Sequence[Run],
    *,
    progress: bool = True,
    test: bool = True,
    wait: Callable[[float], None] = time.sleep,
) -> list[dict[str, Any]]:
    """Return the results of all runs in order; compute those that are missing.

    Several processes may work on the same results folder: each takes runs that no other has started, and finally waits
    for the others.

    Args:
        progress: show progress and the time left.
        test: measure on test data too; a sweep does not.
        wait: sleeps while other processes compute.

    Raises:
        TrainingError: some trainings failed; all other runs are finished.
    """
    unique = list(dict.fromkeys(runs))
    results: dict[Run, dict[str, Any]] = {}
    failed: dict[Run, TrainingError] = {}
    clock = Clock()
    with _bar(progress) as bar:
        task = bar.add_task("", total=len(unique), now="", left="")
        for first in _to_look_for(runner, unique, test):
            bar.update(task, now=f"loading the data of {first.task}")
            runner.splits(first)  # missing data is reported now rather than after hours
        while missing := [run for run in unique if run not in results and run not in failed]:
            before = len(results) + len(failed)
            for run in missing:
                bar.update(task, now=_title(run), left=clock.left([r for r in missing if r not in results]))
                began = time.perf_counter()
                fresh = run.result(runner.results, tested=test) is None
                try:
                    result = runner.execute(run, test=test)
                except TrainingError as error:  # the other runs go on
                    failed[run] = error
                    continue
                if result is None:
                    continue
                if fresh:
                    clock.note(run, time.perf_counter() - began)
                results[run] = result
                bar.update(task, completed=len(results))
            if len(results) + len(failed) == before:
                bar.update(task, now=f"waiting for {len(missing)} runs of other processes", left="")
                wait(PATIENCE_S)
    if failed:
        reasons = "; ".join(f"{_title(run)}: {error}" for run, error in failed.items())
        raise TrainingError(
            f"{len(failed)} of {len(unique)} runs failed; the others are finished. Run the command again to retry. "
            f"{reasons}"
        )
    return [results[run] for run in runs]


@dataclass
class Clock:
    """Estimate the time left from the duration of earlier runs."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def note(self, run: Run, seconds: float) -> None:
        """Record the duration of a run."""
        self.seconds[run.task].append(seconds)

    def left(self, runs: Sequence[Run]) -> str:
        """Return the estimated time for these runs, from runs of the same task if there are any.

        >>> clock = Clock(); clock.left([])
        ''
        """
        known = [second for taken in self.seconds.values() for second in taken]
        if not known or not runs:
            return ""
        expected = sum(mean(self.seconds.get(run.task) or known) for run in runs)
        hours, minutes = divmod(round(expected / 60), 60)
        return f"about {hours} h {minutes:02d} min left" if hours else f"about {max(1, minutes)} min left"


def _to_look_for(runner: Runner, runs: Sequence[Run], test: bool) -> list[Run]:
    """Return one run per task whose data is needed or was passed, so that a wrong folder is noticed."""
    needed = [run for run in runs if runner.data_folder(run) or run.result(runner.results, tested=test) is None]
    return list({run.task: run for run in reversed(needed)}.values())


def _title(run: Run) -> str:
    return f"{run.task}, {method_key(run.method)}, seed {run.seed}"


def _bar(progress: bool) -> Progress:
    return Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.fields[now]}"),
        console=Console(stderr=True),
        disable=not progress,
        transient=True,
    )
