"""Sweep over α and β, and over the position and the number of layers, with Optuna; several aims at once.

Each trial is an ordinary run of one seed, so its result is kept and shared like any other. All values come from
validation data. What is chosen is a point of the Pareto front, by a rule that is written down before (`best_accuracy`,
`best_trade_off`), and only then are all seeds of the chosen methods run and tested.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import DataError, MissingExtraError
from penstock.experiments.methods import GC, PLACE
from penstock.experiments.reproduce import PATIENCE_S
from penstock.experiments.runs import Laboratory, Run
from penstock.experiments.summary import at_point
from penstock.models.eight_blocks import DEPTH

SEED = 0
"""The seed of all trials."""

ALPHAS, BETAS = (0.05, 0.8), (0.02, 2.0)


@dataclass(frozen=True)
class Space:
    """What is varied beside α and β: layers may stand at 40 % alone, or anywhere and be several."""

    places: bool = False
    most_layers: int = 1


@dataclass(frozen=True)
class Trial:
    """What one setting reached, on validation data.

    Attributes:
        accuracy: at the threshold that loses 1 % of the positives.
        early_stopping: there.
        activation_sparsity: of all layers.
    """

    method: GC
    accuracy: float
    early_stopping: float
    activation_sparsity: float

    @property
    def aims(self) -> tuple[float, float, float]:
        """What is maximised."""
        return self.accuracy, self.early_stopping, self.activation_sparsity


def sweep(
    laboratory: Laboratory,
    problem: str,
    *,
    trials: int,
    storage: str,
    profile: str = "lite",
    space: Space = Space(),
) -> list[Trial]:
    """Add trials to a study, and return all that it has; many processes and machines may join it.

    Args:
        trials: how many to add.
        storage: a file name ending in .log, or the address of a database, such as sqlite:///sweep.db.
    """
    optuna = _optuna()
    study = optuna.create_study(
        study_name=f"{profile} {problem} {space}",
        storage=_storage(optuna, storage),
        directions=["maximize"] * 3,
        sampler=optuna.samplers.TPESampler(seed=None, multivariate=True, constant_liar=True),
        load_if_exists=True,
    )
    study.optimize(lambda trial: _try(laboratory, problem, profile, space, trial).aims, n_trials=trials)
    done = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    return [Trial(GC(**_method(trial.user_attrs["method"])), *trial.values) for trial in done]


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


def best_accuracy(trials: Sequence[Trial], *, early_stopping: float = 0.82, sparsity: float = 0.4) -> Trial:
    """Return the most accurate point of the front that stops and thins enough; the first of equals."""
    return _best(trials, lambda trial: trial.accuracy, early_stopping, sparsity, accuracy=0.0)


def best_trade_off(trials: Sequence[Trial], *, accuracy: float, sparsity: float = 0.93) -> Trial:
    """Return the point of the front that stops most, among those that are accurate and sparse enough."""
    return _best(trials, lambda trial: trial.early_stopping, 0.0, sparsity, accuracy=accuracy)


def _best(trials: Sequence[Trial], aim: Any, early_stopping: float, sparsity: float, accuracy: float) -> Trial:
    """Return the best of what fulfils all; where nothing does, the point that misses by least."""
    front = pareto(trials)
    if not front:
        raise DataError("the study has no finished trial yet: let it run, then choose.")
    floor = (accuracy, early_stopping, sparsity)

    def miss(trial: Trial) -> float:
        return sum(max(0.0, least - value) for least, value in zip(floor, trial.aims, strict=True))

    return min(front, key=lambda trial: (miss(trial), -aim(trial)))


def _try(laboratory: Laboratory, problem: str, profile: str, space: Space, trial: Any) -> Trial:
    alpha = round(trial.suggest_float("alpha", *ALPHAS), 2)
    beta = round(trial.suggest_float("beta", *BETAS, log=True), 3)
    count = trial.suggest_int("layers", 1, space.most_layers)
    deepest = trial.suggest_int("deepest", count, DEPTH) if space.places else PLACE
    blocks = tuple(round((i + 1) * deepest / count) for i in range(count))
    method = GC(alpha, beta, blocks)
    trial.set_user_attr("method", asdict(method))
    run = Run(problem, method, SEED, profile)
    while (result := laboratory.perform(run)) is None:  # another process has drawn the same setting
        time.sleep(PATIENCE_S)
    point = at_point(result, "validation")
    return Trial(method, point["accuracy"], point["early_stopping"], result["activation_sparsity"])


def _method(plain: dict[str, Any]) -> dict[str, Any]:
    return {**plain, "blocks": tuple(plain["blocks"])}


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
