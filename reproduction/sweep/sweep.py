"""Sweep over α and β, and over the position and the number of layers, with Optuna; several aims at once.

Each trial is the mean of ordinary runs, one a seed, so their results are kept and shared like any other: one seed alone
ranks little. They are measured on validation data alone. What is chosen is a point of the Pareto front, by a rule that
is written down before (front.py), and only then does a table test it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from penstock.errors import DataError, MissingExtraError, StorageError, TrainingError
from penstock.models.eight_blocks import DEPTH
from reproduction.experiments.execute import execute_runs
from reproduction.experiments.measure import ACCURACY_TOLERANCE
from reproduction.experiments.methods import DEFAULT_BLOCK, GC, Baseline, Method
from reproduction.experiments.runner import Runner
from reproduction.experiments.runs import Run
from reproduction.experiments.tasks import TASKS
from reproduction.sweep.pareto import (
    ENOUGH_STOPPED,
    MOST_DROPPED,
    SOME_DROPPED,
    Trial,
    best_accuracy,
    best_trade_off,
    pareto_front,
)
from reproduction.sweep.selected_weights import LossWeights

ALPHAS, BETAS = (0.05, 0.8), (0.02, 2.0)


@dataclass(frozen=True)
class SearchSpace:
    """What is varied beside α and β: layers may stand at 40 % alone, or anywhere and be several."""

    positions: bool = False
    max_layers: int = 1

    def __post_init__(self) -> None:
        most = DEPTH if self.positions else 1
        if not 1 <= self.max_layers <= most:
            raise DataError(
                f"most_layers = {self.max_layers} is not possible: 1 at the one place at 40 %, and up to {DEPTH} with "
                "positions."
            )


@dataclass(frozen=True)
class SweepConfig:
    """What is swept.

    Attributes:
        task, profile: as in `Run`.
        space: what is varied.
        seeds: those that a trial is the mean of; by default all of the budget's.
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
    """Bring a study to so many trials, and return all that it has, each once; processes and machines may join it.

    A trial whose training fails is left out, and another takes its place.

    Args:
        trials: how many the study shall have in the end; those it has already count.
        storage: a file name ending in .log, or the address of a database, such as sqlite:///sweep.db.
        initial: α and β to try before others, such as the paper's.
        on_trial: called with each trial of this process, and how many the study then has.
    """
    for alpha, beta in initial:
        if not (ALPHAS[0] <= alpha <= ALPHAS[1] and BETAS[0] <= beta <= BETAS[1]):
            raise DataError(
                f"α = {alpha:g}, β = {beta:g} lies outside what is swept: α from {ALPHAS[0]:g} to {ALPHAS[1]:g}, β "
                f"from {BETAS[0]:g} to {BETAS[1]:g}."
            )
    optuna = _optuna()
    done, waiting = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.WAITING
    study = _study(optuna, config.study_name, storage)
    tried = [
        trial.params | trial.system_attrs.get("fixed_params", {}) for trial in study.get_trials(states=(done, waiting))
    ]  # not RUNNING: its process may have died, and a run is shared
    for alpha, beta in initial:
        if not any((params.get("alpha"), params.get("beta")) == (alpha, beta) for params in tried):
            study.enqueue_trial({"alpha": alpha, "beta": beta})

    def one(trial: Any) -> tuple[float, float, float]:
        result = _try(runner, config, trial)
        on_trial(result, len(study.get_trials(deepcopy=False, states=(done,))) + 1)
        return result.aims

    enough = optuna.study.MaxTrialsCallback(trials, states=(done,))
    if len(study.get_trials(states=(done,))) < trials:
        study.optimize(one, callbacks=[enough], catch=(TrainingError,))
    found = [_trial(trial.user_attrs["trial"]) for trial in study.get_trials(states=(done,))]
    return list(dict.fromkeys(found))  # two processes may begin with the same


def select_weights(runner: Runner, config: SweepConfig, trials: Sequence[Trial]) -> Path:
    """Choose the rows of table 1 by the written rules, and write the choice beside the results.

    The best trade-off may not be less accurate than the plain network on validation data, but for `ACCURACY_TOLERANCE`. That must
    hold by a margin, the standard error of the plain network's mean over seeds: of many settings some are lucky.
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
                "at_least": {"accuracy": floor, "activation_sparsity": MOST_DROPPED},
            },
            "accuracy": {
                "rule": best_accuracy.__doc__,
                "at_least": {"early_stopping": ENOUGH_STOPPED, "activation_sparsity": SOME_DROPPED},
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
    """Return the mean over `LOSS_LEVELS` of what all gates together stop."""
    several = validation.get("modes")
    curve = several["incremental"][-1] if several else next(gate for gate in validation["gates"] if gate)
    return mean(curve["early_stopping_at"].values())


def _trial(plain: dict[str, Any]) -> Trial:
    method = plain["method"]
    return Trial(**{**plain, "method": GC(**{**method, "blocks": tuple(method["blocks"])})})


def _study(optuna: Any, name: str, storage: str) -> Any:
    """Open a study, or begin it."""
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
            f"the study could not be opened in {storage}: {reason}. Give a file or a database that can be written; one "
            "that is damaged is to be moved away, and the runs that it tried are not lost by that."
        ) from error


def _storage(optuna: Any, text: str) -> Any:
    if text.endswith(".log"):
        backend = optuna.storages.journal.JournalFileBackend(text)
        return optuna.storages.JournalStorage(backend)
    if "://" not in text:
        raise DataError(
            f"storage {text!r} is not understood: give a file that ends in .log, or the address of a database, such as "
            "sqlite:///sweep.db."
        )
    return text


def _optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a sweep needs 'optuna', which is not installed: pip install 'penstock[sweep]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
