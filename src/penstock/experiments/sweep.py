"""Sweep over α and β, and over the position and the number of layers, with Optuna; several aims at once.

Each trial is an ordinary run of one seed, so its result is kept and shared like any other. All values come from
validation data. What is chosen is a point of the Pareto front, by a rule that is written down before (`best_accuracy`,
`best_trade_off`), and only then are all seeds of the chosen methods run and tested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from penstock.errors import DataError, MissingExtraError
from penstock.experiments.chosen import Weights
from penstock.experiments.measure import SLACK
from penstock.experiments.methods import GC, PLACE, Baseline
from penstock.experiments.problems import PROBLEMS
from penstock.experiments.reproduce import PATIENCE_S
from penstock.experiments.runs import Laboratory, Run
from penstock.models.eight_blocks import DEPTH

SEED = 0
"""The seed of all trials."""

ALPHAS, BETAS = (0.05, 0.8), (0.02, 2.0)

ENOUGH_STOPPED, SOME_DROPPED, MOST_DROPPED = 0.82, 0.4, 0.93
"""What the rules ask of the best accuracy (early stopping, sparsity) and of the best trade-off (sparsity)."""


@dataclass(frozen=True)
class Space:
    """What is varied beside α and β: layers may stand at 40 % alone, or anywhere and be several."""

    places: bool = False
    most_layers: int = 1

    def __post_init__(self) -> None:
        most = DEPTH if self.places else 1
        if not 1 <= self.most_layers <= most:
            raise DataError(
                f"most_layers = {self.most_layers} is not possible: 1 at the one place at 40 %, and up to {DEPTH} with "
                "places."
            )


@dataclass(frozen=True)
class Trial:
    """What one setting reached, on validation data.

    Attributes:
        accuracy, early_stopping: at the operating point "accurate" (`measure.Choices`).
        stopping_at_loss: early stopping at equal positives lost: the mean over `measure.LOST`.
        activation_sparsity: of all layers.
    """

    method: GC
    accuracy: float
    early_stopping: float
    stopping_at_loss: float
    activation_sparsity: float

    def __str__(self) -> str:
        method, blocks = self.method, ", ".join(map(str, self.method.blocks))
        return (
            f"α {method.alpha:g}, β {method.beta:g}, behind {blocks}: accuracy {self.accuracy:.2%}, early stopping "
            f"{self.early_stopping:.1%} ({self.stopping_at_loss:.1%} at equal loss), "
            f"sparsity {self.activation_sparsity:.1%}"
        )

    @property
    def aims(self) -> tuple[float, float, float]:
        """What is maximised."""
        return self.accuracy, self.stopping_at_loss, self.activation_sparsity


def sweep(
    laboratory: Laboratory,
    problem: str,
    *,
    trials: int,
    storage: str,
    profile: str = "lite",
    space: Space = Space(),
    first: Sequence[tuple[float, float]] = (),
    seen: Callable[[Trial, int], None] = lambda trial, done: None,
) -> list[Trial]:
    """Bring a study to so many trials, and return all that it has; many processes and machines may join it.

    Args:
        trials: how many the study shall have in the end; those it has already count.
        storage: a file name ending in .log, or the address of a database, such as sqlite:///sweep.db.
        first: α and β to begin a new study with, such as the paper's.
        seen: called with each trial of this process, and how many the study then has.
    """
    optuna = _optuna()
    done = optuna.trial.TrialState.COMPLETE
    study = optuna.create_study(
        study_name=f"{problem} {PROBLEMS[problem].budget(profile)} {space}",
        storage=_storage(optuna, storage),
        directions=["maximize"] * 3,
        sampler=optuna.samplers.TPESampler(seed=None, multivariate=True, constant_liar=True),
        load_if_exists=True,
    )
    states = optuna.trial.TrialState
    tried = [
        trial.params | trial.system_attrs.get("fixed_params", {})
        for trial in study.get_trials(states=(states.COMPLETE, states.WAITING))
    ]  # not RUNNING: its process may have died, and a run is shared
    for alpha, beta in first:
        if not any((params.get("alpha"), params.get("beta")) == (alpha, beta) for params in tried):
            study.enqueue_trial({"alpha": alpha, "beta": beta})

    def one(trial: Any) -> tuple[float, float, float]:
        result = _try(laboratory, problem, profile, space, trial)
        seen(result, len(study.get_trials(deepcopy=False, states=(done,))) + 1)
        return result.aims

    enough = optuna.study.MaxTrialsCallback(trials, states=(done,))
    if len(study.get_trials(states=(done,))) < trials:
        study.optimize(one, callbacks=[enough])
    return [_trial(trial.user_attrs["trial"]) for trial in study.get_trials(states=(done,))]


def pareto(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other beats in one aim and equals in the rest."""
    return [
        one
        for one in trials
        if not any(
            other.aims != one.aims and all(a >= b for a, b in zip(other.aims, one.aims, strict=True))
            for other in trials
        )
    ]


def best_accuracy(
    trials: Sequence[Trial], *, early_stopping: float = ENOUGH_STOPPED, sparsity: float = SOME_DROPPED
) -> Trial:
    """Return the most accurate point of the front that stops and thins enough; the first of equals."""
    return _best(
        trials,
        aim=lambda trial: trial.accuracy,
        short=lambda trial: (early_stopping - trial.early_stopping, sparsity - trial.activation_sparsity),
    )


def best_trade_off(trials: Sequence[Trial], *, accuracy: float, sparsity: float = MOST_DROPPED) -> Trial:
    """Return the point of the front that stops most at equal loss, among those that are accurate and sparse enough."""
    return _best(
        trials,
        aim=lambda trial: trial.stopping_at_loss,
        short=lambda trial: (accuracy - trial.accuracy, sparsity - trial.activation_sparsity),
    )


def _best(trials: Sequence[Trial], aim: Callable[[Trial], float], short: Callable[[Trial], tuple[float, ...]]) -> Trial:
    """Return the best of what falls short in nothing; where all do, the point that misses by least."""
    front = pareto(trials)
    if not front:
        raise DataError("the study has no finished trial yet: let it run, then choose.")
    return min(front, key=lambda trial: (sum(max(0.0, missing) for missing in short(trial)), -aim(trial)))


def choose(laboratory: Laboratory, problem: str, trials: Sequence[Trial], *, profile: str = "lite") -> Path:
    """Choose the rows of table 1 by the written rules, and write the choice beside the results.

    The best trade-off may not be less accurate than the plain network on validation data, as far as one seed tells.
    """
    plain = wait_for(laboratory, Run(problem, Baseline(), SEED, profile))["validation"]["accuracy_open"]
    accuracy, trade_off = best_accuracy(trials), best_trade_off(trials, accuracy=plain - SLACK)
    weights = Weights(
        gate=trade_off.method.alpha,
        compression=trade_off.method.beta,
        trade_off=(trade_off.method.alpha, trade_off.method.beta),
        accuracy=(accuracy.method.alpha, accuracy.method.beta),
    )
    evidence = {
        "rules": {
            "trade_off": {
                "rule": best_trade_off.__doc__,
                "at_least": {"accuracy": plain - SLACK, "activation_sparsity": MOST_DROPPED},
            },
            "accuracy": {
                "rule": best_accuracy.__doc__,
                "at_least": {"early_stopping": ENOUGH_STOPPED, "activation_sparsity": SOME_DROPPED},
            },
        },
        "plain_validation_accuracy": plain,
        "front": [asdict(trial) for trial in pareto(trials)],
        "trials": [asdict(trial) for trial in trials],
    }
    return weights.write(laboratory.results, profile, problem, evidence)


def wait_for(laboratory: Laboratory, run: Run) -> dict[str, Any]:
    """Return a run's result, waiting for another process if that computes it."""
    while (result := laboratory.perform(run)) is None:
        time.sleep(PATIENCE_S)
    return result


def _try(laboratory: Laboratory, problem: str, profile: str, space: Space, trial: Any) -> Trial:
    alpha = round(trial.suggest_float("alpha", *ALPHAS), 2)
    beta = round(trial.suggest_float("beta", *BETAS, log=True), 3)
    count = trial.suggest_int("layers", 1, space.most_layers)
    deepest = trial.suggest_int("deepest", count, DEPTH) if space.places else PLACE
    blocks = tuple(round((i + 1) * deepest / count) for i in range(count))
    method = GC(alpha, beta, blocks)
    result = wait_for(laboratory, Run(problem, method, SEED, profile))
    validation = result["validation"]
    point, curve = validation["points"]["accurate"], validation["gates"][-1]["early_stopping_at"]
    if len(blocks) > 1:
        curve = validation["modes"]["incremental"][-1]["early_stopping_at"]
    reached = Trial(
        method, point["accuracy"], point["early_stopping"], mean(curve.values()), result["activation_sparsity"]
    )
    trial.set_user_attr("trial", asdict(reached))
    return reached


def _trial(plain: dict[str, Any]) -> Trial:
    method = plain["method"]
    return Trial(**{**plain, "method": GC(**{**method, "blocks": tuple(method["blocks"])})})


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
