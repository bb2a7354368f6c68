"""Terminal tables of experiments, results, trials and claims."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from penstock.gating.tables import percent, table_of
from reproduction.experiments.paper_experiments import Experiment
from reproduction.results.claims import Claim
from reproduction.results.summary import MeanStd, SummaryRow
from reproduction.sweep.pareto import Trial


def experiments_table(experiments: Iterable[Experiment]) -> Table:
    """Return one row per table and figure of the paper."""
    table = table_of("name", "description", "tasks", title="Experiments")
    for experiment in experiments:
        table.add_row(experiment.name, experiment.title, ", ".join(experiment.tasks))
    return table


def results_table(rows: Iterable[SummaryRow]) -> Table:
    """Return one row per method and task: means over seeds, at the operating point of table 1."""
    table = table_of(
        "task",
        "method",
        ">seeds",
        ">accuracy",
        ">early stopping",
        ">lost",
        ">sparsity",
        ">AUC",
        title="Test data, means over seeds; thresholds chosen for accuracy on validation data",
    )
    for row in rows:
        table.add_row(
            row.task,
            " ".join(
                [
                    row.method,
                    *(f"{_SETTING_NAMES.get(name, name)} {_setting(value)}" for name, value in row.settings.items()),
                ]
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
    """Return one row per trial of a sweep."""
    columns = (">α", ">β", "layers after", ">accuracy", ">early stopping", ">at equal loss", ">sparsity")
    table = table_of(*columns, title="Pareto front, on validation data")
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
    """Return one row per claim of the paper: our value, the target, and whether it holds."""
    table = table_of("claim", "data", ">value", ">target", "holds", ">seeds", title="The paper's claims, on test data")
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


_SETTING_NAMES = {"alpha": "α", "beta": "β", "blocks": "at", "block": "at", "switch_every": "N"}


def _setting(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _mean_std(value: MeanStd) -> str:
    return f"{100 * value.mean:.2f} ± {100 * value.std:.2f}"
