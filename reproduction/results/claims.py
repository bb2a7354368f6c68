"""The paper's claims as targets: each compares a value measured on test data with a number.

All values are means over seeds. Differences are taken between runs of the same seed, then averaged. Early stopping is
compared at equal positive loss, accuracy at the operating point "accurate" (`measure.OperatingPoints`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from scipy.stats import spearmanr

from penstock.models.blocknet import DEPTH
from reproduction.experiments.measure import LOSS_LEVELS
from reproduction.experiments.methods import GC, Baseline, BranchyNet
from reproduction.experiments.paper_experiments import EXPERIMENTS, gate_every_block, positions
from reproduction.results.finished_runs import BySeed, FinishedRuns
from reproduction.results.summary import at_operating_point

COMPARED_LOSS = "0.01"
"""Share of positives lost at which positions and several gates are compared."""

DIGITS = 9
"""Digits that values are rounded to, so that floating-point error does not decide a claim."""

NOT_RUN = "not run yet"

_WORDS = {">=": "at least", "<=": "at most"}


@dataclass(frozen=True)
class Claim:
    """A measured value and its target.

    Attributes:
        quantity: what is measured.
        data: the name of the task.
        value: the mean over seeds; None before the first run.
        sign, reach: the target.
        seeds: the finished seeds.
        expected_seeds: the seeds of the profile; the claim is undecided until all of them are finished.
        std: the standard deviation over seeds; None if the value is not a mean of one value per seed.
        losses_allowed: the number of positives that may be lost ("0 of 80"), for comparisons at equal loss.
    """

    quantity: str
    data: str
    value: float | None
    sign: Literal[">=", "<="]
    reach: float
    seeds: tuple[int, ...]
    expected_seeds: tuple[int, ...] = ()
    std: float | None = None
    losses_allowed: str = ""

    @property
    def claim(self) -> str:
        """The claim as a sentence."""
        return f"{self.quantity} is {_WORDS[self.sign]} {self.reach:g}"

    @property
    def holds(self) -> bool | None:
        """Whether the value meets the target; None while seeds are missing."""
        if self.value is None or self.seeds != self.expected_seeds:
            return None
        return self.value >= self.reach if self.sign == ">=" else self.value <= self.reach

    @property
    def status(self) -> str:
        """Whether the claim holds, as text."""
        unknown = f"{len(self.seeds)} of {len(self.expected_seeds)} seeds" if self.seeds else NOT_RUN
        return {None: unknown, True: "yes", False: "MISSED"}[self.holds]

    @property
    def value_text(self) -> str:
        """The value with four digits, or more if rounding would make a missed target look met."""
        if self.value is None:
            return "–"
        texts = (f"{self.value:.{digits}f}" for digits in range(4, DIGITS + 1))
        return next(text for text in texts if self.holds is not False or float(text) != self.reach)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of claims.json."""
        names = ("claim", "data", "value", "sign", "reach", "holds")
        required = {name: getattr(self, name) for name in names} | {"seeds": list(self.seeds)}
        optional = {"standard_deviation": self.std, "positives_that_may_be_lost": self.losses_allowed or None}
        return required | {name: value for name, value in optional.items() if value is not None}


def claims(results: Path, profile: str) -> list[Claim]:
    """Return all claims, task by task; claims without a finished run have no value."""
    finished = FinishedRuns(results, profile)
    found: list[Claim] = []
    several = finished.tasks(EXPERIMENTS["figure-modes"])
    for task in finished.tasks():
        of_task = [*_trade_off(finished, task), *_accuracy(finished, task), *_position(finished, task)]
        of_task += _modes(finished, task) if task in several else ()
        found += [replace(claim, expected_seeds=finished.seeds(task)) for claim in of_task]
    return found


def _trade_off(finished: FinishedRuns, task: str) -> Iterator[Claim]:
    """Compare the best trade-off with BranchyNet and the Baseline."""
    ours = finished.by_seed(task, GC(*finished.weights(task).trade_off))
    branchy = finished.by_seed(task, BranchyNet())
    row = "best trade-off:"
    for lost in LOSS_LEVELS:
        values = _differences(ours, branchy, partial(stopping_at, lost=f"{lost:g}"))
        quantity = f"{row} early stopping at {100 * lost:g} % of positives lost, minus BranchyNet's,"
        yield _claim(quantity, task, values, 0.0, _allowance(ours, lost))
    aucs = _differences(ours, branchy, lambda result: result["test"]["gates"][0]["auc"])
    yield _claim(f"{row} AUC of the gate, minus BranchyNet's,", task, aucs, 0.0)
    yield _claim(f"{row} activation sparsity", task, _each(ours, _sparsity), 0.93)
    points = _differences(ours, finished.by_seed(task, Baseline()), _accuracy_points)
    yield _claim(f"{row} accuracy minus the Baseline's, in points,", task, points, -0.3)


def _accuracy(finished: FinishedRuns, task: str) -> Iterator[Claim]:
    """Compare the best accuracy with the Baseline."""
    ours = finished.by_seed(task, GC(*finished.weights(task).accuracy))
    row = "best accuracy:"
    points = _differences(ours, finished.by_seed(task, Baseline()), _accuracy_points)
    yield _claim(f"{row} accuracy minus the Baseline's, in points,", task, points, 0.5)
    stopped = _each(ours, lambda result: at_operating_point(result)["early_stopping"])
    yield _claim(f"{row} early stopping", task, stopped, 0.82)
    yield _claim(f"{row} activation sparsity", task, _each(ours, _sparsity), 0.40)


def _position(finished: FinishedRuns, task: str) -> Iterator[Claim]:
    """Test whether early stopping rises and sparsity falls with the depth of a single layer."""
    places = [finished.by_seed(task, method) for method in positions(finished.weights(task))]
    seeds = _common(*places)
    quantities: tuple[tuple[str, Callable[[Any], float], Literal[">=", "<="], float], ...] = (
        ("early stopping at 1 % of positives lost", partial(stopping_at, lost=COMPARED_LOSS), ">=", 0.8),
        ("activation sparsity", _sparsity, "<=", -0.8),
    )
    allowances = (_allowance(places[0], float(COMPARED_LOSS)), "")
    for (name, quantity, sign, reach), allowance in zip(quantities, allowances, strict=True):
        means = [mean(quantity(place[seed]) for seed in seeds) for place in places] if seeds else []
        value = round(rank_correlation(means), DIGITS) if means else None
        description = f"position: rank correlation of {name} with depth"
        yield Claim(description, task, value, sign, reach, seeds, losses_allowed=allowance)


def _modes(finished: FinishedRuns, task: str) -> Iterator[Claim]:
    """Compare incremental gates with each gate alone, and with networks that have a single gate."""
    weights = finished.weights(task)
    several = finished.by_seed(task, gate_every_block(weights))
    singles = [finished.by_seed(task, method) for method in positions(weights)]
    together = "several gates at 1 % of positives lost: incremental minus"
    allowance = _allowance(several, float(COMPARED_LOSS))
    yield _smallest(
        f"{together} independent, smallest over the positions,",
        task,
        _common(several),
        allowance,
        lambda seed, k: incremental(several[seed], k) - stopping_at(several[seed], COMPARED_LOSS, gate=k),
    )
    yield _smallest(
        f"{together} one gate only, smallest over the positions,",
        task,
        _common(several, *singles),
        allowance,
        lambda seed, k: incremental(several[seed], k) - stopping_at(singles[k][seed], COMPARED_LOSS),
    )


def stopping_at(result: dict[str, Any], lost: str, gate: int = 0) -> float:
    """Return the early stopping of a gate on test data, at a share of positives lost such as "0.01"."""
    return float(result["test"]["gates"][gate]["early_stopping_at"][lost])


def incremental(result: dict[str, Any], gate: int) -> float:
    """Return the early stopping of all gates up to this one, at 1 % of positives lost by the cascade."""
    return float(result["test"]["modes"]["incremental"][gate]["early_stopping_at"][COMPARED_LOSS])


def _smallest(
    quantity: str, task: str, seeds: tuple[int, ...], allowance: str, difference: Callable[[int, int], float]
) -> Claim:
    """Claim that the mean of ``difference(seed, gate)`` over seeds is at least 0 for every gate."""
    value = min(mean(difference(seed, k) for seed in seeds) for k in range(DEPTH)) if seeds else None
    rounded = None if value is None else round(value, DIGITS)
    return Claim(quantity, task, rounded, ">=", 0.0, seeds, losses_allowed=allowance)


def _claim(quantity: str, task: str, values: Mapping[int, float], reach: float, allowance: str = "") -> Claim:
    value = round(mean(values.values()), DIGITS) if values else None
    std = round(stdev(values.values()), DIGITS) if len(values) > 1 else None
    return Claim(quantity, task, value, ">=", reach, tuple(values), std=std, losses_allowed=allowance)


def _allowance(results: BySeed, lost: float) -> str:
    """Return how many positives of the test data may be lost; empty without results."""
    counts = {result["test"]["positives"] for result in results.values()}
    return " or ".join(f"{int(lost * count + 1e-9):,} of {count:,}" for count in sorted(counts))


def _each(results: BySeed, quantity: Callable[[Any], float]) -> dict[int, float]:
    return {seed: quantity(result) for seed, result in results.items()}


def _differences(ours: BySeed, others: BySeed, quantity: Callable[[Any], float]) -> dict[int, float]:
    return {seed: quantity(ours[seed]) - quantity(others[seed]) for seed in _common(ours, others)}


def _common(*groups: BySeed) -> tuple[int, ...]:
    """Return the seeds that all groups have."""
    return tuple(sorted(set(groups[0]).intersection(*groups[1:])))


def rank_correlation(values: Sequence[float]) -> float:
    """Return Spearman's correlation of the values with their position; 0 if all values are equal."""
    if len(set(values)) == 1:
        return 0.0
    return float(spearmanr(range(len(values)), values).statistic)


def _sparsity(result: dict[str, Any]) -> float:
    return float(result["activation_sparsity"])


def _accuracy_points(result: dict[str, Any]) -> float:
    return 100 * float(at_operating_point(result)["accuracy"])
