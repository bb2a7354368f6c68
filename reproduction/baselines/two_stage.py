"""Two-stage training: gate and network are trained alternately, with no gradient between them.

The paper's appendix compares joint training with this (section "Manually Two Stages Training"): the part before the cut
learns from the gate loss alone, the part after it learns to predict from fixed features, and the two alternate every N
epochs. If N is half of all epochs, this is a cascade of two models trained in sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from torch import Tensor, nn

from penstock.datasets.loading import Data
from penstock.errors import TrainingError
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective
from penstock.training.config import FitConfig
from penstock.training.fit import fit
from penstock.training.module import History


class StopGradient(nn.Module):
    """Identity in the forward pass; blocks the gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


@contextmanager
def stop_gradients(net: GatedNetwork) -> Iterator[GatedNetwork]:
    """Block the gradient after each layer of ``net`` inside the context; outputs do not change.

    Do not save or ungate the network inside the context: its stages are wrapped.
    """
    stages = list(net.stages)
    try:
        for i, stage in enumerate(stages[1:], start=1):
            net.stages[i] = nn.Sequential(StopGradient(), stage)
        yield net
    finally:
        for i, stage in enumerate(stages):
            net.stages[i] = stage


def fit_in_two_stages(
    net: GatedNetwork,
    train: Data,
    val: Data | None = None,
    *,
    switch_every: int,
    objective: Objective = Objective(),
    config: FitConfig = FitConfig(),
) -> list[History]:
    """Train the gate's side and the prediction's side of ``net`` by turns; return the history of each turn.

    The gate's side begins and the prediction's side ends, each with as many turns.

    Args:
        switch_every: the epochs of a turn.
        objective: as of `fit`.
        config: its epochs are those of all turns together. Each turn has its own optimizer, its own seed, and so its
            own order, and its own folder: a run that was killed resumes in the turn that was interrupted.

    Raises:
        TrainingError: when the epochs do not make an even number of turns.
    """
    turns = _turns(config.epochs, switch_every)
    sides = cycle([[net.stages[0], *net.layers], list(net.stages[1:])])
    histories = []
    with stop_gradients(net):
        for turn in range(turns):
            folder = None if config.folder is None else Path(config.folder) / f"turn-{turn}"
            own = replace(config, epochs=switch_every, seed=hash((config.seed, turn)) % 2**31, folder=folder)
            with _only(net, next(sides)):
                histories.append(fit(net, train, val, objective=objective, config=own))
    return histories


def _turns(epochs: int, switch_every: int) -> int:
    """Return the number of turns; raise an error unless it is even."""
    if not 1 <= switch_every <= epochs or epochs % switch_every:
        raise TrainingError(
            f"switch_every must divide the {epochs} epochs, since turns are equally long, got {switch_every}."
        )
    turns = epochs // switch_every
    if turns % 2:
        raise TrainingError(
            f"gate and network must have the same number of turns, got {turns} turns for switch_every={switch_every}, "
            f"epochs={epochs}: make epochs a multiple of {2 * switch_every}, or change switch_every."
        )
    return turns


@contextmanager
def _only(net: GatedNetwork, parts: list[nn.Module]) -> Iterator[None]:
    """Freeze all parameters outside these parts."""
    before = {parameter: parameter.requires_grad for parameter in net.parameters()}
    trained = {id(parameter) for part in parts for parameter in part.parameters()}
    try:
        for parameter in before:
            parameter.requires_grad_(before[parameter] and id(parameter) in trained)
        yield
    finally:
        for parameter, required in before.items():
            parameter.requires_grad_(required)
