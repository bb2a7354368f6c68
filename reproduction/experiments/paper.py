"""All of the paper's results as lists of runs.

Several results share runs (the single gate at 40 % of table 1 is a point of the figure of positions); a run is
computed once. The paper's α and β stand in until a sweep on validation data has chosen others (`sweep.choose`): the
scale of its transmission cost is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import DataError
from penstock.models.eight_blocks import DEPTH
from reproduction.experiments.methods import GC, Baseline, BranchyNet, C, Dropout, G, GateInput, Method, TwoStage
from reproduction.experiments.runs import Run
from reproduction.experiments.tasks import TASKS, Budget
from reproduction.sweep.chosen import Weights

HERE = ("fashion-mnist", "cifar10", "speech-commands", "wake-word")
"""The problems whose data anybody can have; the paper's others need an account or a form."""


PAPERS = {
    "fashion-mnist": Weights(0.50, 0.55, (0.50, 0.55), (0.05, 0.10)),
    "cifar10": Weights(0.55, 0.05, (0.70, 0.80), (0.60, 0.15)),
    "imagenet": Weights(0.25, 0.35, (0.35, 0.15), (0.45, 0.05)),
    "wake-word": Weights(0.45, 0.20, (0.45, 0.20), (0.30, 0.10)),
    "hey-snips": Weights(0.45, 0.20, (0.45, 0.20), (0.30, 0.10)),
    "speech-commands": Weights(0.05, 0.35, (0.05, 0.35), (0.25, 0.10)),
}
"""The paper's own α and β."""


def weights_of(results: Path, profile: str, problem: str) -> Weights:
    """Return the α and β that a sweep chose on validation data, or the paper's own where there was none."""
    return Weights.chosen(results, profile, problem) or PAPERS[problem]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        name: as `python -m reproduction run` takes it.
        title: what it shows.
        problems: what it is run on.
    """

    name: str
    title: str
    problems: tuple[str, ...]

    def methods(self, weights: Weights, profile: str, problem: str) -> list[Method]:
        """Return what is compared, given α and β."""
        return _METHODS[self.name](weights, GRIDS[profile], TASKS[problem].budget(profile))

    def runs(self, profile: str, problems: Sequence[str] | None = None, *, results: Path) -> list[Run]:
        """Return its runs: seed by seed, so that a broken experiment has whole comparisons of fewer seeds.

        Args:
            problems: instead of its own.
            results: the folder where sweeps leave the α and β that they chose.
        """
        chosen = self.problems if problems is None else tuple(problems)
        unknown = sorted(set(chosen) - set(TASKS))
        if unknown:
            raise DataError(f"there is no problem {', '.join(unknown)}; known are {', '.join(TASKS)}.")
        budgets = {problem: TASKS[problem].budget(profile) for problem in chosen}
        return [
            Run(problem, method, seed, profile)
            for problem, budget in budgets.items()
            for seed in budget.seeds
            for method in self.methods(weights_of(results, profile, problem), profile, problem)
        ]


def table1(weights: Weights) -> list[Method]:
    """Return the six methods of table 1."""
    return [
        Baseline(),
        BranchyNet(),
        G(weights.gate),
        C(weights.compression),
        GC(*weights.trade_off),
        GC(*weights.accuracy),
    ]


def positions(weights: Weights) -> list[Method]:
    """Return a single layer behind each of the eight blocks."""
    return [GC(*weights.trade_off, blocks=(block,)) for block in range(1, DEPTH + 1)]


def counts(weights: Weights, grid: Grid) -> list[Method]:
    """Return one to eight layers, spread evenly."""
    return [GC(*weights.trade_off, blocks=spread(count)) for count in grid.counts]


def everywhere(weights: Weights) -> Method:
    """Return a network with a layer behind each of the eight blocks."""
    return GC(*weights.trade_off, blocks=spread(DEPTH))


def spread(count: int) -> tuple[int, ...]:
    """Return the blocks behind which so many layers stand, evenly.

    >>> spread(4), spread(1), spread(8)
    ((2, 4, 6, 8), (4,), (1, 2, 3, 4, 5, 6, 7, 8))
    """
    return (4,) if count == 1 else tuple(round((i + 1) * DEPTH / count) for i in range(count))


@dataclass(frozen=True)
class Grid:
    """What the figures vary.

    Attributes:
        counts: of layers.
        alphas, betas: weights of a gate and of a compression.
        gate_inputs: the blocks that a gate reads; 0 is the raw input.
        dropouts: rates of the control.
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
"""By profile; of the lite one so many points as show a direction, since each is trained several times."""


def turns(epochs: int) -> list[int]:
    """Return lengths of a turn that give gate and network as many turns each.

    >>> turns(24), turns(200)
    ([1, 6], [1, 10, 50, 100])
    """
    return [length for length in (1, 6, 10, 50, 100) if epochs % (2 * length) == 0]


_METHODS: dict[str, Callable[[Weights, Grid, Budget], list[Method]]] = {
    "table1": lambda weights, grid, budget: table1(weights),
    "figure-position": lambda weights, grid, budget: positions(weights),
    "figure-count": lambda weights, grid, budget: counts(weights, grid),
    "figure-modes": lambda weights, grid, budget: [*positions(weights), everywhere(weights)],
    "figure-alpha": lambda weights, grid, budget: [Baseline(), *(G(alpha) for alpha in grid.alphas)],
    "figure-beta": lambda weights, grid, budget: [Baseline(), *(GC(0.5, beta) for beta in grid.betas)],
    "figure-weights": lambda weights, grid, budget: [GC(*weights.trade_off)],
    "figure-gate-input": lambda weights, grid, budget: [GateInput(block, 0.7, 0.6) for block in grid.gate_inputs],
    "figure-two-stages": lambda weights, grid, budget: [
        GC(0.5, 0.55),
        *(TwoStage(turn, 0.5, beta) for turn in turns(budget.epochs) for beta in (None, 0.55)),
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
    name: Experiment(name, title, problems)
    for name, title, problems in (
        ("table1", "six methods on each data set", HERE),
        ("figure-position", "early stopping and sparsity against the position of one layer", HERE),
        ("figure-count", "accuracy against the number of layers", ("fashion-mnist", "wake-word")),
        ("figure-modes", "independent, incremental and one gate only", ("fashion-mnist", "wake-word")),
        ("figure-alpha", "the effect of α on network and gate", ("cifar10",)),
        ("figure-beta", "the effect of β on network and mask", ("cifar10",)),
        ("figure-weights", "the histogram of φ, and the mask's size when sparsely encoded", ("cifar10",)),
        ("figure-gate-input", "the effect of the gate's input", ("cifar10",)),
        ("figure-two-stages", "training in two stages", ("cifar10",)),
        ("figure-dropout", "a control: the network as it is, with dropout in the layer's place", ("cifar10",)),
        ("figure-roc", "the gates' curves against BranchyNet's", HERE),
    )
}
