"""Training in two stages: gate and network taught one after the other, with no gradient between them.

The paper's appendix compares joint training with this (section "Manually Two Stages Training"): what stands before the
cut learns from the gate alone, what stands behind it learns to predict from what it is given, and the two take turns of
N epochs. With turns of half the epochs it is a plain cascade of two models trained in sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from penstock.data.batches import Data
from penstock.errors import TrainingError
from penstock.network import GatedNetwork
from penstock.training import History, fit


class StopGradient(nn.Module):
    """Hand features on, and no gradient back."""

    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


def stop_gradients(net: GatedNetwork) -> GatedNetwork:
    """Stop the gradient behind each layer of ``net``; it computes what it computed before."""
    for i, stage in enumerate(net.stages):
        if i and not (isinstance(stage, nn.Sequential) and isinstance(stage[0], StopGradient)):
            net.stages[i] = nn.Sequential(StopGradient(), stage)
    return net


def fit_in_two_stages(
    net: GatedNetwork,
    train: Data,
    val: Data | None = None,
    *,
    epochs: int,
    switch_every: int,
    folder: str | Path | None = None,
    **options: Any,
) -> list[History]:
    """Train the gate's side and the prediction's side of ``net`` by turns; return the history of each turn.

    Args:
        epochs: of all turns together.
        switch_every: the epochs of a turn.
        options: as of `fit`. Each turn has an optimizer of its own.
    """
    if not 1 <= switch_every <= epochs or epochs % switch_every:
        raise TrainingError(
            f"switch_every = {switch_every} is not possible with {epochs} epochs: turns are equally long, so give a "
            f"divisor of {epochs}."
        )
    stop_gradients(net)
    sides = cycle([[net.stages[0], *net.layers], list(net.stages[1:])])
    histories = []
    for turn in range(epochs // switch_every):
        with _only(net, next(sides)):
            where = None if folder is None else Path(folder) / f"turn-{turn}"
            histories.append(fit(net, train, val, epochs=switch_every, folder=where, **options))
    return histories


@contextmanager
def _only(net: GatedNetwork, parts: list[nn.Module]) -> Iterator[None]:
    """Let only the parameters of these parts learn."""
    before = {parameter: parameter.requires_grad for parameter in net.parameters()}
    mine = {id(parameter) for part in parts for parameter in part.parameters()}
    try:
        for parameter in before:
            parameter.requires_grad_(before[parameter] and id(parameter) in mine)
        yield
    finally:
        for parameter, learns in before.items():
            parameter.requires_grad_(learns)
