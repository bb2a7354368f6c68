"""Tables of experiments, results, trials and claims for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from penstock.gating.tables import percent, table_of
from reproduction.experiments.paper_experiments import Experiment
from reproduction.results.claims import Claim
from reproduction.results.summary import MeanStd, SummaryRow
from reproduction.sweep.pareto import Trial


def experiments_table(experiments: Iterable[Experiment]) -> Table:
    """Return a row for each table and figure that can be reproduced."""
    table = table_of("name", "what it shows", "tasks", title="The paper's results")
    for experiment in experiments:
        table.add_row(experiment.name, experiment.title, ", ".join(experiment.tasks))
    return table


def results_table(rows: Iterable[SummaryRow]) -> Table:
    """Return a row for each method on each task: means over seeds, at the operating point of a table."""
    table = table_of(
        "task",
        "method",
        ">seeds",
        ">accuracy",
        ">early stopping",
        ">lost",
        ">sparsity",
        ">AUC",
        title="Test data, means over seeds; thresholds chosen on validation data, by accuracy",
    )
    for row in rows:
        table.add_row(
            row.task,
            " ".join(
                [row.method, *(f"{_GREEK.get(name, name)} {_setting(value)}" for name, value in row.settings.items())]
            ),
            str(len(row.seeds)),
            _mean_std(row.accuracy),
            percent(row.early_stopping.mean),
            percent(row.positive_lost_rate.mean),
            percent(row.activation_sparsity.mean),
            "" if row.auc is None else f"{row.auc.mean:.4f}",
        )
    return table


def trials_table(trials: Iterable[Trial]) -> Table:
    """Return a row for each trial of a sweep."""
    columns = (">α", ">β", "layers behind", ">accuracy", ">early stopping", ">at equal loss", ">sparsity")
    table = table_of(*columns, title="The Pareto front, on validation data")
    for trial in sorted(trials, key=lambda trial: -trial.accuracy):
        table.add_row(
            f"{trial.method.alpha:g}",
            f"{trial.method.beta:g}",
            "blocks " + ", ".join(map(str, trial.method.blocks)),
            *(
                percent(value)
                for value in (trial.accuracy, trial.early_stopping, trial.stopping_at_loss, trial.activation_sparsity)
            ),
        )
    return table


def claims_table(claims: Iterable[Claim]) -> Table:
    """Return a row for each claim of the paper: what it is of ours, and whether it holds."""
    table = table_of("claim", "data", ">value", ">reach", "holds", ">seeds", title="The paper's claims, on test data")
    for claim in claims:
        table.add_row(
            claim.quantity.rstrip(","),
            claim.data,
            claim.value_text,
            f"{claim.sign} {claim.reach:g}",
            claim.status,
            str(len(claim.seeds)),
        )
    return table


_GREEK = {"alpha": "α", "beta": "β", "blocks": "at", "block": "at", "switch_every": "N"}


def _setting(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _mean_std(value: MeanStd) -> str:
    return f"{100 * value.mean:.2f} ± {100 * value.std:.2f}"
