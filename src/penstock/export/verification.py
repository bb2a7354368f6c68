"""Is what was exported still the network? Its outputs, and what it decides on data, held against PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.datasets.loading import Data, batches
from penstock.errors import ExportError
from penstock.evaluation import metrics
from penstock.gating.cascade import exit_stages
from penstock.gating.network import GatedNetwork
from penstock.runtime.engines import Engine, Output

TOLERANCE = 1e-5
"""By how much an output may differ, in parts of the largest one."""


def relative_error(out: Output, wanted: Tensor | tuple[Tensor, Tensor]) -> float:
    """Return the largest difference of what a stage gives to what it should, in parts of the largest value.

    Logits of a gate are all near 0 where it is in doubt: they are measured in parts of 1 at least.
    """
    values, logits = wanted if isinstance(wanted, tuple) else (wanted, None)
    error = _difference(out.values, values) / max(float(values.abs().max()), 1e-30)
    if logits is None or out.gate is None:
        return error
    return max(error, _difference(out.gate, logits) / max(float(logits.abs().max()), 1.0))


def _difference(ours: np.ndarray, theirs: Tensor) -> float:
    return float(np.abs(ours - theirs.detach().numpy()).max())


def check_error(error: float, number: int) -> None:
    """Refuse a stage that computes something else.

    Raises:
        ExportError: when the error is above `TOLERANCE`.
    """
    if not error <= TOLERANCE:
        raise ExportError(
            f"stage {number} computes something else in the exported graph: it differs by {error:.2g} of its largest "
            f"output, and {TOLERANCE:g} is allowed. Please report the network; until then put the gate elsewhere."
        )


@dataclass(frozen=True)
class Decisions:
    """What a gated network makes of a data set, as shares."""

    accuracy: float
    early_stopping: float
    positive_lost_rate: float


@dataclass(frozen=True)
class Outputs:
    """What every stage said of every sample of a data set, with all gates open.

    Shapes:
        labels: (n,); logits: (n, classes); gates: (n,) each, None without a gate.
    """

    labels: Tensor
    logits: Tensor
    gates: list[Tensor | None]

    def decided(self, net: GatedNetwork, thresholds: Sequence[float | None]) -> Decisions:
        """Return what the gates make of it."""
        stopped = exit_stages(self.gates, thresholds, samples=len(self.labels)) < len(net.stages)
        predicted = torch.where(stopped, net.background, self.logits.argmax(1))
        positive = net.positive(self.labels)
        return Decisions(
            metrics.accuracy(predicted, self.labels),
            metrics.early_stopping(stopped, positive),
            metrics.positive_lost_rate(stopped, positive),
        )


def collect_engine_outputs(
    engines: Sequence[Engine], data: Data, *, batch_size: int = 64, progress: str | None = None
) -> Outputs:
    """Ask the exported stages about every sample."""
    labels, logits = [], []
    gates: list[list[np.ndarray]] = [[] for _ in engines[:-1]]
    for x, y in batches(data, batch_size=batch_size, progress=progress):
        values = x.numpy()
        for number, engine in enumerate(engines):
            values, said = engine.run(values)
            if said is not None:
                gates[number].append(said)
        labels.append(y)
        logits.append(values)
    joined = [torch.from_numpy(np.concatenate(gate)) if gate else None for gate in gates]
    return Outputs(torch.cat(labels), torch.from_numpy(np.concatenate(logits)), joined)


def check_decisions(before: Decisions, after: Decisions, allowed: float) -> None:
    """Refuse an export that decides worse.

    Raises:
        ExportError: when accuracy or early stopping fall, or the positives lost rise, by more than ``allowed``.
    """
    costs = {
        "accuracy": before.accuracy - after.accuracy,
        "early stopping": before.early_stopping - after.early_stopping,
        "positives": after.positive_lost_rate - before.positive_lost_rate,
    }
    worst = max(costs, key=lambda name: costs[name])
    if costs[worst] > allowed:
        raise ExportError(
            f"the exported network costs {100 * costs[worst]:.2f} points of {worst} on the data given, and "
            f"{100 * allowed:g} are allowed (accuracy {before.accuracy:.2%} -> {after.accuracy:.2%}, early stopping "
            f"{before.early_stopping:.2%} -> {after.early_stopping:.2%}, positives lost "
            f"{before.positive_lost_rate:.2%} -> {after.positive_lost_rate:.2%}). Give more, and more various, samples "
            "for the ranges, or export in float32."
        )
