"""The tables of the results page, in Markdown: budgets, claims, table 1, mask sizes, sweeps and trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2, prod
from statistics import mean
from typing import Any

from penstock.gating.layers.gated_compression import FLOAT_BYTES
from penstock.gating.tables import percent
from reproduction.experiments.measure import LOSS_LEVELS
from reproduction.experiments.methods import GC, Method
from reproduction.experiments.paper_experiments import EXPERIMENTS, table1
from reproduction.experiments.tasks import TASKS
from reproduction.page.markdown import table
from reproduction.results.claims import NOT_RUN, Claim
from reproduction.results.finished_runs import BySeed, FinishedRuns
from reproduction.results.paper_table1 import PAPER_TABLE1, ROWS, PaperRow
from reproduction.results.summary import MeanStd, at_operating_point
from reproduction.sweep.selected_weights import read_trials

EMPTY = "–"


def budgets_table(finished: FinishedRuns) -> str:
    """Return one row per data set: network, training budget, and sizes of the training and test data."""
    columns = ["data set", "network", ">width", ">epochs", ">batch", ">training samples", ">positives"]
    columns += [">test samples", ">positives", ">seeds", ">minutes per run"]
    return table(columns, [_budget(finished, task) for task in finished.tasks()])


def _budget(finished: FinishedRuns, task: str) -> list[str]:
    known = TASKS[task]
    budget = known.budget(finished.profile)
    runs = [
        run
        for experiment in EXPERIMENTS.values()
        if task in finished.tasks(experiment)
        for run in experiment.runs(finished.profile, [task], results=finished.results)
    ]
    results = [found for run in dict.fromkeys(runs) if (found := run.result(finished.results)) is not None]
    samples = [NOT_RUN] * 4
    if results:
        train, test = results[0]["trained_on"], results[0]["test"]
        samples = [f"{count:,}" for count in (sum(train), sum(train[1:]), test["samples"], test["positives"])]
    minutes = f"{mean(result['seconds'] for result in results) / 60:.1f}" if results else NOT_RUN
    sizes = [str(size) for size in (budget.width, budget.epochs, budget.batch_size)]
    return [known.title, known.network, *sizes, *samples, str(len(budget.seeds)), minutes]


def claims_table(claims: Sequence[Claim]) -> str:
    """Return one row per claim."""
    rows = [
        [
            claim.claim,
            claim.data,
            claim.value_text if claim.std is None else f"{claim.value_text} ± {claim.std:.4f}",
            f"{'≥' if claim.sign == '>=' else '≤'} {claim.reach:g}",
            claim.status,
            seed_count(len(claim.seeds), len(claim.expected_seeds)),
            claim.losses_allowed,
        ]
        for claim in claims
    ]
    return table(["claim", "data", ">value", ">target", "holds", ">seeds", ">positives that may be lost"], rows)


def seed_count(finished: int, expected: int) -> str:
    """Return the number of finished seeds, as "2 of 3" if some are missing."""
    return str(expected) if finished == expected else f"{finished} of {expected}"


def task_table(finished: FinishedRuns, task: str) -> str:
    """Return table 1 of a data set: our values, and the paper's in the last columns."""
    columns = ["method", ">α", ">β", ">seeds", ">accuracy", ">early stopping", ">positives lost", ">sparsity", ">AUC"]
    columns += [f">stopped at {100 * lost:g} % lost" for lost in LOSS_LEVELS]
    columns += [">paper: accuracy", ">early stopping", ">sparsity"]
    methods = table1(finished.weights(task))
    rows = [
        _row(published, method, finished.by_seed(task, method), len(finished.seeds(task)))
        for published, method in zip(PAPER_TABLE1[task], methods, strict=True)
    ]
    assert [row[0] for row in rows] == list(ROWS)
    return table(columns, rows)


def _row(published: PaperRow, method: Method, results: BySeed, expected_seeds: int) -> list[str]:
    weights = [getattr(method, name, None) for name in ("alpha", "beta")]
    return [
        published.method,
        *(EMPTY if weight is None else f"{weight:g}" for weight in weights),
        seed_count(len(results), expected_seeds),
        *(_measured(results) if results else [NOT_RUN] + [EMPTY] * (4 + len(LOSS_LEVELS))),
        f"{published.accuracy:.5f} ± {published.accuracy_std:.5f}",
        *(f"{100 * share:.4g} %" for share in (published.early_stopping, published.activation_sparsity)),
    ]


def _measured(results: BySeed) -> list[str]:
    points = [at_operating_point(result) for result in results.values()]
    accuracy = MeanStd.of([point["accuracy"] for point in points])
    curves = [gate for result in results.values() for gate in result["test"]["gates"] if gate is not None]
    return [
        f"{accuracy.mean:.4f}" + (f" ± {accuracy.std:.4f}" if len(results) > 1 else ""),
        percent(mean(point["early_stopping"] for point in points)),
        percent(mean(point["positive_lost_rate"] for point in points)),
        percent(mean(result["activation_sparsity"] for result in results.values())),
        f"{mean(curve['auc'] for curve in curves):.4f}" if curves else EMPTY,
        *(
            percent(mean(curve["early_stopping_at"][f"{lost:g}"] for curve in curves)) if curves else EMPTY
            for lost in LOSS_LEVELS
        ),
    ]


@dataclass(frozen=True)
class MaskSize:
    """The size of a mask under several encodings.

    Attributes:
        values: dimensions of the mask.
        kept: dimensions that the mask keeps.
    """

    values: int
    kept: int

    @property
    def bitmap_bytes(self) -> int:
        """One bit per dimension."""
        return ceil(self.values / 8)

    @property
    def indices_bytes(self) -> int:
        """The index of each kept dimension: 16 bits if that is enough, otherwise 32."""
        return self.kept * (2 if self.values <= 1 << 16 else 4)

    @property
    def entropy_bytes(self) -> float:
        """The lower bound of any code that treats dimensions as independent.

        >>> MaskSize(16, 8).entropy_bytes, MaskSize(16, 0).entropy_bytes
        (2.0, 0.0)
        """
        shares = (self.kept / self.values, 1 - self.kept / self.values)
        return self.values * sum(-share * log2(share) for share in shares if share > 0) / 8

    @classmethod
    def of(cls, result: dict[str, Any]) -> MaskSize:
        """Read the mask of the first layer from a result."""
        layer = result["layers"][0]
        values = prod(layer["feature"])
        return cls(values, round(layer["density"] * values))


def masks_table(finished: FinishedRuns) -> str:
    """Return mask sizes of the best trade-off, means over seeds; data sets without runs are left out."""
    rows = []
    for task in finished.tasks():
        results = finished.by_seed(task, GC(*finished.weights(task).trade_off))
        masks = [MaskSize.of(result) for result in results.values()]
        if masks:
            kept = mean(mask.kept for mask in masks)
            sizes = [masks[0].values * FLOAT_BYTES, kept * FLOAT_BYTES, masks[0].bitmap_bytes]
            sizes += [mean(mask.indices_bytes for mask in masks), mean(mask.entropy_bytes for mask in masks)]
            counts = [f"{size:,.0f}" for size in (masks[0].values, kept, *sizes)]
            rows.append([TASKS[task].title, *counts])
    columns = ("values", "kept", "all values", "kept values", "mask: bitmap", "mask: indices", "mask: entropy")
    return table(["data set", *(f">{column}" for column in columns)], rows)


def sweeps_table(finished: FinishedRuns) -> str:
    """Return one row per setting of a sweep: its values on validation data, and the rows of table 1 that use it."""
    rows = []
    for task in finished.tasks():
        weights = finished.weights(task)
        for trial in read_trials(finished.results, finished.profile, task):
            pair = (trial["method"]["alpha"], trial["method"]["beta"])
            chosen_as = [
                row
                for row, chosen in zip(ROWS[-2:], (weights.trade_off, weights.accuracy), strict=True)
                if pair == chosen
            ]
            shares = [trial[name] for name in ("early_stopping", "stopping_at_loss", "activation_sparsity")]
            rows.append(
                [
                    TASKS[task].title,
                    *(f"{weight:g}" for weight in pair),
                    f"{trial['accuracy']:.4f}",
                    *map(percent, shares),
                    "; ".join(chosen_as),
                ]
            )
    columns = (">α", ">β", ">accuracy", ">early stopping", ">at equal loss", ">sparsity", "chosen as")
    return table(["data set", *columns], rows)


def preliminary_trials_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one row per preliminary trial: its setting, and its values on validation data."""
    columns = ["data set", "training data", "method", "setting", ">seed", ">accuracy"]
    columns += [f">stopped at {100 * lost:g} % lost" for lost in LOSS_LEVELS] + [">sparsity"]
    return table(
        columns,
        [
            [
                row["problem"],
                row["trained_on"],
                row["method"],
                row["tried"],
                str(row["seed"]),
                f"{row['accuracy']:.4f}",
                *(f"{value:.3f}" for value in row["early_stopping_at"]),
                *[EMPTY] * (len(LOSS_LEVELS) - len(row["early_stopping_at"])),
                f"{row['activation_sparsity']:.3f}",
            ]
            for row in rows
        ],
    )
