"""Multi-objective sweep over α and β, and over the position and number of layers, with Optuna.

A trial is the mean of ordinary runs, one per seed, whose results are kept and shared like any others. Trials are
measured on validation data only. The settings of table 1 are points of the Pareto front, selected by rules fixed
beforehand (pareto.py), and only those are tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from penstock.errors import DataError, StorageError, TrainingError, require
from penstock.models.blocknet import DEPTH
from reproduction.experiments.execute import execute_runs
from reproduction.experiments.measure import ACCURACY_TOLERANCE
from reproduction.experiments.methods import DEFAULT_BLOCK, GC, Baseline, Method
from reproduction.experiments.runner import Runner
from reproduction.experiments.runs import Run
from reproduction.experiments.tasks import TASKS
from reproduction.sweep.pareto import (
    MIN_EARLY_STOPPING,
    MIN_SPARSITY,
    MIN_TRADE_OFF_SPARSITY,
    Trial,
    best_accuracy,
    best_trade_off,
    pareto_front,
)
from reproduction.sweep.selected_weights import LossWeights

ALPHAS, BETAS = (0.05, 0.8), (0.02, 2.0)


@dataclass(frozen=True)
class SearchSpace:
    """What is varied besides α and β: nothing (one layer at 40 % depth), or the position and number of layers."""

    positions: bool = False
    max_layers: int = 1

    def __post_init__(self) -> None:
        most = DEPTH if self.positions else 1
        if not 1 <= self.max_layers <= most:
            raise DataError(f"max_layers must be 1, or 1 to {DEPTH} with positions=True, got {self.max_layers}")


@dataclass(frozen=True)
class SweepConfig:
    """A sweep.

    Attributes:
        task, profile: as in `Run`.
        space: what is varied.
        seeds: seeds of a trial; by default all of the budget's.
    """

    task: str
    profile: str = "lite"
    space: SearchSpace = SearchSpace()
    seeds: tuple[int, ...] = ()

    def runs(self, method: Method) -> list[Run]:
        """Return the runs of a method."""
        seeds = self.seeds or TASKS[self.task].budget(self.profile).seeds
        return [Run(self.task, method, seed, self.profile) for seed in seeds]

    @property
    def study_name(self) -> str:
        """The name of the Optuna study: everything that trials must share to be comparable.

        The text is fixed, whatever the classes are called, so that studies in existing storages are found again.
        """
        budget = TASKS[self.task].budget(self.profile)
        optimizer = ", ".join(f"{name}={value!r}" for name, value in asdict(budget.optimizer).items())
        fields = {field.name: repr(getattr(budget, field.name)) for field in dataclass_fields(budget)}
        fields["optimizer"] = f"Adam({optimizer})"
        settings = ", ".join(f"{name}={text}" for name, text in fields.items())
        space = f"Space(places={self.space.positions}, most_layers={self.space.max_layers})"
        return f"{self.task} Budget({settings}) {space} {self.seeds}"


def sweep(
    runner: Runner,
    config: SweepConfig,
    *,
    trials: int,
    storage: str,
    initial: Sequence[tuple[float, float]] = (),
    on_trial: Callable[[Trial, int], None] = lambda trial, done: None,
) -> list[Trial]:
    """Run a study until it has ``trials`` trials, and return them without duplicates.

    Processes and machines may join the same study. A trial whose training fails is replaced by another.

    Args:
        trials: total number of trials, earlier ones included.
        storage: a file ending in .log, or a database URL such as sqlite:///sweep.db.
        initial: α and β to try first, such as the paper's.
        on_trial: called with each trial of this process and the number of trials in the study.
    """
    for alpha, beta in initial:
        if not (ALPHAS[0] <= alpha <= ALPHAS[1] and BETAS[0] <= beta <= BETAS[1]):
            raise DataError(
                f"α must be in [{ALPHAS[0]:g}, {ALPHAS[1]:g}] and β in [{BETAS[0]:g}, {BETAS[1]:g}], got "
                f"α = {alpha:g}, β = {beta:g}"
            )
    optuna = _optuna()
    done, waiting = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.WAITING
    study = _study(optuna, config.study_name, storage)
    tried = [
        trial.params | trial.system_attrs.get("fixed_params", {}) for trial in study.get_trials(states=(done, waiting))
    ]  # not RUNNING: that process may have died
    for alpha, beta in initial:
        if not any((params.get("alpha"), params.get("beta")) == (alpha, beta) for params in tried):
            study.enqueue_trial({"alpha": alpha, "beta": beta})

    def one(trial: Any) -> tuple[float, float, float]:
        result = _try(runner, config, trial)
        on_trial(result, len(study.get_trials(deepcopy=False, states=(done,))) + 1)
        return result.objectives

    enough = optuna.study.MaxTrialsCallback(trials, states=(done,))
    if len(study.get_trials(states=(done,))) < trials:
        study.optimize(one, callbacks=[enough], catch=(TrainingError,))
    found = [_trial(trial.user_attrs["trial"]) for trial in study.get_trials(states=(done,))]
    return list(dict.fromkeys(found))  # two processes may start with the same settings


def select_weights(runner: Runner, config: SweepConfig, trials: Sequence[Trial]) -> Path:
    """Select the settings of table 1 by the fixed rules, and write them to the results folder.

    The best trade-off may be less accurate than the plain network on validation data by `ACCURACY_TOLERANCE` at most,
    with a margin of one standard error of the plain network's mean, since some of many settings are lucky.
    """
    runs = execute_runs(runner, config.runs(Baseline()), progress=False, test=False)
    accuracies = [result["validation"]["accuracy_open"] for result in runs]
    plain, margin = mean(accuracies), stdev(accuracies) / len(runs) ** 0.5 if len(runs) > 1 else 0.0
    floor = plain - ACCURACY_TOLERANCE + margin
    accuracy, trade_off = best_accuracy(trials), best_trade_off(trials, accuracy=floor)
    weights = LossWeights(
        gate=trade_off.method.alpha,
        compression=trade_off.method.beta,
        trade_off=(trade_off.method.alpha, trade_off.method.beta),
        accuracy=(accuracy.method.alpha, accuracy.method.beta),
    )
    evidence = {
        "rules": {
            "trade_off": {
                "rule": best_trade_off.__doc__,
                "at_least": {"accuracy": floor, "activation_sparsity": MIN_TRADE_OFF_SPARSITY},
            },
            "accuracy": {
                "rule": best_accuracy.__doc__,
                "at_least": {"early_stopping": MIN_EARLY_STOPPING, "activation_sparsity": MIN_SPARSITY},
            },
        },
        "plain_validation_accuracy": plain,
        "front": [asdict(trial) for trial in pareto_front(trials)],
        "trials": [asdict(trial) for trial in trials],
    }
    return weights.write(runner.results, config.profile, config.task, evidence)


def _try(runner: Runner, config: SweepConfig, trial: Any) -> Trial:
    space = config.space
    alpha = round(trial.suggest_float("alpha", *ALPHAS), 2)
    beta = round(trial.suggest_float("beta", *BETAS, log=True), 3)
    count = trial.suggest_int("layers", 1, space.max_layers)
    deepest = trial.suggest_int("deepest", count, DEPTH) if space.positions else DEFAULT_BLOCK
    blocks = tuple(round((i + 1) * deepest / count) for i in range(count))
    method = GC(alpha, beta, blocks)
    results = execute_runs(runner, config.runs(method), progress=False, test=False)
    points = [result["validation"]["points"]["accurate"] for result in results]
    reached = Trial(
        method,
        accuracy=mean(point["accuracy"] for point in points),
        early_stopping=mean(point["early_stopping"] for point in points),
        stopping_at_loss=mean(_stopping_at_loss(result["validation"]) for result in results),
        activation_sparsity=mean(result["activation_sparsity"] for result in results),
    )
    trial.set_user_attr("trial", asdict(reached))
    return reached


def _stopping_at_loss(validation: dict[str, Any]) -> float:
    """Return the early stopping of all gates together, averaged over `LOSS_LEVELS`."""
    several = validation.get("modes")
    curve = several["incremental"][-1] if several else next(gate for gate in validation["gates"] if gate)
    return mean(curve["early_stopping_at"].values())


def _trial(plain: dict[str, Any]) -> Trial:
    method = plain["method"]
    return Trial(**{**plain, "method": GC(**{**method, "blocks": tuple(method["blocks"])})})


def _study(optuna: Any, name: str, storage: str) -> Any:
    """Open or create a study."""
    from sqlalchemy.exc import SQLAlchemyError  # Optuna brings it

    try:
        return optuna.create_study(
            study_name=name,
            storage=_storage(optuna, storage),
            directions=["maximize"] * 3,
            sampler=optuna.samplers.TPESampler(seed=None, multivariate=True, constant_liar=True),
            load_if_exists=True,
        )
    except (OSError, ValueError, KeyError, SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        reason = str(error).partition("\n")[0]
        raise StorageError(
            f"cannot open the study in {storage}: {reason}. Pass a writable file or database; if it is damaged, move "
            "it away (finished runs are kept)."
        ) from error


def _storage(optuna: Any, text: str) -> Any:
    if text.endswith(".log"):
        backend = optuna.storages.journal.JournalFileBackend(text)
        return optuna.storages.JournalStorage(backend)
    if "://" not in text:
        raise DataError(
            f"storage must be a file ending in .log or a database URL such as sqlite:///sweep.db, got {text!r}"
        )
    return text


def _optuna() -> Any:
    optuna: Any = require("optuna", extra="sweep")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
