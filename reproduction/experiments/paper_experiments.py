"""All results of the paper as lists of runs.

Experiments share runs (the single gate at 40 % depth of table 1 is a point of the figure of positions); a run is
computed once. The paper's α and β are used until a sweep on validation data has selected others
(`sweep.select_weights`), because the scale of the paper's transmission cost is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DataError
from penstock.models.blocknet import DEPTH
from reproduction.experiments.methods import GC, Baseline, BranchyNet, C, Dropout, G, GateInput, Method, TwoStage
from reproduction.experiments.runs import Run
from reproduction.experiments.tasks import TASKS, Budget
from reproduction.sweep.selected_weights import LossWeights

PUBLIC_TASKS = ("fashion-mnist", "cifar10", "speech-commands", "wake-word")
"""Tasks with freely available data; the paper's others need an account or a form."""


PAPER_WEIGHTS = {
    "fashion-mnist": LossWeights(0.50, 0.55, (0.50, 0.55), (0.05, 0.10)),
    "cifar10": LossWeights(0.55, 0.05, (0.70, 0.80), (0.60, 0.15)),
    "imagenet": LossWeights(0.25, 0.35, (0.35, 0.15), (0.45, 0.05)),
    "wake-word": LossWeights(0.45, 0.20, (0.45, 0.20), (0.30, 0.10)),
    "hey-snips": LossWeights(0.45, 0.20, (0.45, 0.20), (0.30, 0.10)),
    "speech-commands": LossWeights(0.05, 0.35, (0.05, 0.35), (0.25, 0.10)),
}
"""The paper's own α and β."""


def task_weights(results: Path, profile: str, task: str) -> LossWeights:
    """Return the α and β selected by a sweep on validation data, or else the paper's."""
    return LossWeights.load(results, profile, task) or PAPER_WEIGHTS[task]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        name: as `python -m reproduction run` takes it.
        title: what it shows.
        tasks: the tasks it is run on.
    """

    name: str
    title: str
    tasks: tuple[str, ...]

    def methods(self, weights: LossWeights, profile: str, task: str) -> list[Method]:
        """Return the methods that are compared, given α and β."""
        return _METHODS[self.name](weights, GRIDS[profile], TASKS[task].budget(profile))

    def runs(self, profile: str, tasks: Sequence[str] | None = None, *, results: Path) -> list[Run]:
        """Return the runs, seed by seed, so that an interrupted experiment has complete comparisons of fewer seeds.

        Args:
            tasks: replace the experiment's own tasks.
            results: folder in which sweeps write the α and β they select.
        """
        chosen = self.tasks if tasks is None else tuple(tasks)
        unknown = sorted(set(chosen) - set(TASKS))
        if unknown:
            raise DataError(f"unknown task {', '.join(unknown)}: choose from {', '.join(TASKS)}.")
        budgets = {task: TASKS[task].budget(profile) for task in chosen}
        return [
            Run(task, method, seed, profile)
            for task, budget in budgets.items()
            for seed in budget.seeds
            for method in self.methods(task_weights(results, profile, task), profile, task)
        ]


def table1(weights: LossWeights) -> list[Method]:
    """Return the six methods of table 1."""
    return [
        Baseline(),
        BranchyNet(),
        G(weights.gate),
        C(weights.compression),
        GC(*weights.trade_off),
        GC(*weights.accuracy),
    ]


def positions(weights: LossWeights) -> list[Method]:
    """Return networks with a single layer, after each of the eight blocks."""
    return [GC(*weights.trade_off, blocks=(block,)) for block in range(1, DEPTH + 1)]


def counts(weights: LossWeights, grid: Grid) -> list[Method]:
    """Return networks with one to eight evenly spaced layers."""
    return [GC(*weights.trade_off, blocks=evenly_spaced_blocks(count)) for count in grid.counts]


def gate_every_block(weights: LossWeights) -> Method:
    """Return the network with a layer after each of the eight blocks."""
    return GC(*weights.trade_off, blocks=evenly_spaced_blocks(DEPTH))


def evenly_spaced_blocks(count: int) -> tuple[int, ...]:
    """Return the blocks that ``count`` evenly spaced layers follow.

    >>> evenly_spaced_blocks(4), evenly_spaced_blocks(1), evenly_spaced_blocks(8)
    ((2, 4, 6, 8), (4,), (1, 2, 3, 4, 5, 6, 7, 8))
    """
    return (4,) if count == 1 else tuple(round((i + 1) * DEPTH / count) for i in range(count))


@dataclass(frozen=True)
class Grid:
    """The values that the figures vary.

    Attributes:
        counts: numbers of layers.
        alphas, betas: weights of the gate and of the compression.
        gate_inputs: blocks that the gate reads; 0 is the raw input.
        dropouts: dropout rates of the control.
    """

    counts: tuple[int, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    gate_inputs: tuple[int, ...]
    dropouts: tuple[float, ...] = (0.1, 0.3, 0.5)


GRIDS = {
    "paper": Grid(
        counts=tuple(range(1, DEPTH + 1)),
        alphas=(0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
        betas=(0.0, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.6, 0.72, 0.8),
        gate_inputs=tuple(range(DEPTH + 1)),
    ),
    "lite": Grid(
        counts=(1, 2, 4, 6, 8),
        alphas=(0.05, 0.3, 0.55, 0.8),
        betas=(0.0, 0.05, 0.15, 0.4, 0.72),
        gate_inputs=(0, 2, 4, 6),
    ),
}
"""By profile; the lite grid has just enough points to show a trend."""


def switch_intervals(epochs: int) -> list[int]:
    """Return the values of ``switch_every`` that train gate and network equally long.

    >>> switch_intervals(24), switch_intervals(200)
    ([1, 6], [1, 10, 50, 100])
    """
    return [interval for interval in (1, 6, 10, 50, 100) if epochs % (2 * interval) == 0]


_METHODS: dict[str, Callable[[LossWeights, Grid, Budget], list[Method]]] = {
    "table1": lambda weights, grid, budget: table1(weights),
    "figure-position": lambda weights, grid, budget: positions(weights),
    "figure-count": lambda weights, grid, budget: counts(weights, grid),
    "figure-modes": lambda weights, grid, budget: [*positions(weights), gate_every_block(weights)],
    "figure-alpha": lambda weights, grid, budget: [Baseline(), *(G(alpha) for alpha in grid.alphas)],
    "figure-beta": lambda weights, grid, budget: [Baseline(), *(GC(0.5, beta) for beta in grid.betas)],
    "figure-weights": lambda weights, grid, budget: [GC(*weights.trade_off)],
    "figure-gate-input": lambda weights, grid, budget: [GateInput(block, 0.7, 0.6) for block in grid.gate_inputs],
    "figure-two-stages": lambda weights, grid, budget: [
        GC(0.5, 0.55),
        *(TwoStage(interval, 0.5, beta) for interval in switch_intervals(budget.epochs) for beta in (None, 0.55)),
    ],
    "figure-dropout": lambda weights, grid, budget: [
        Baseline(),
        GC(*weights.trade_off),
        GC(*weights.accuracy),
        *(Dropout(rate) for rate in grid.dropouts),
    ],
    "figure-roc": lambda weights, grid, budget: [BranchyNet(), GC(*weights.trade_off)],
}

EXPERIMENTS: dict[str, Experiment] = {
    name: Experiment(name, title, tasks)
    for name, title, tasks in (
        ("table1", "six methods on each data set", PUBLIC_TASKS),
        ("figure-position", "early stopping and sparsity against the position of one layer", PUBLIC_TASKS),
        ("figure-count", "accuracy against the number of layers", ("fashion-mnist", "wake-word")),
        ("figure-modes", "independent gates, incremental gates and a single gate", ("fashion-mnist", "wake-word")),
        ("figure-alpha", "the effect of α on network and gate", ("cifar10",)),
        ("figure-beta", "the effect of β on network and mask", ("cifar10",)),
        ("figure-weights", "the histogram of φ, and the mask's size when sparsely encoded", ("cifar10",)),
        ("figure-gate-input", "the effect of the gate's input", ("cifar10",)),
        ("figure-two-stages", "training in two stages", ("cifar10",)),
        ("figure-dropout", "control: the plain network with dropout in place of the layer", ("cifar10",)),
        ("figure-roc", "ROC curves of gates and BranchyNet exits", PUBLIC_TASKS),
    )
}
