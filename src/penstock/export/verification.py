"""Compare an exported network with PyTorch: outputs of each stage, and decisions on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.datasets.loading import Data, batches
from penstock.errors import ExportError
from penstock.evaluation import metrics
from penstock.evaluation.outputs import Outputs, collect
from penstock.gating.cascade import exit_stages
from penstock.gating.network import GatedNetwork
from penstock.runtime.engines import Engine, Output

TOLERANCE = 1e-5
"""Largest relative error of a stage's outputs."""


def relative_error(output: Output, expected: Tensor | tuple[Tensor, Tensor]) -> float:
    """Return the largest difference between an engine's outputs and PyTorch's, relative to the largest output.

    A gate's logits are near 0 where it is uncertain, so their differences are relative to at least 1.
    """
    values, logits = expected if isinstance(expected, tuple) else (expected, None)
    error = _difference(output.values, values) / max(float(values.abs().max()), 1e-30)
    if logits is None or output.gate is None:
        return error
    return max(error, _difference(output.gate, logits) / max(float(logits.abs().max()), 1.0))


def _difference(ours: np.ndarray, theirs: Tensor) -> float:
    return float(np.abs(ours - theirs.detach().numpy()).max())


def check_error(error: float, stage: int) -> None:
    """Refuse a stage whose relative error is above `TOLERANCE`."""
    if not error <= TOLERANCE:
        raise ExportError(
            f"outputs of exported stage {stage} differ from PyTorch's by {error:.2g} of the largest output, at most "
            f"{TOLERANCE:g} is accepted. Please report the network; until then, cut it elsewhere."
        )


@dataclass(frozen=True)
class Decisions:
    """Decisions of a gated network on a data set, as shares."""

    accuracy: float
    early_stopping: float
    positive_lost_rate: float


def decide(net: GatedNetwork, outputs: Outputs, thresholds: Sequence[float | None]) -> Decisions:
    """Return the decisions at these thresholds, whoever computed the outputs."""
    stopped = exit_stages(outputs.gates, thresholds, samples=len(outputs.labels)) < len(net.stages)
    predicted = torch.where(stopped, net.background, outputs.logits.argmax(1))
    positive = net.positive(outputs.labels)
    return Decisions(
        metrics.accuracy(predicted, outputs.labels),
        metrics.early_stopping(stopped, positive),
        metrics.positive_lost_rate(stopped, positive),
    )


def collect_engine_outputs(
    engines: Sequence[Engine], data: Data, *, batch_size: int = 64, progress: str | None = None
) -> Outputs:
    """Run every sample through all exported stages."""

    def forward(x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        values, gates = x.numpy(), []
        for engine in engines:
            values, gate_logit = engine.run(values)
            gates.append(None if gate_logit is None else torch.from_numpy(gate_logit))
        return torch.from_numpy(values), gates[:-1]

    return collect(forward, batches(data, batch_size=batch_size, progress=progress))


def check_decisions(before: Decisions, after: Decisions, tolerance: float) -> None:
    """Refuse an export whose accuracy, early stopping or positives lost are worse by more than ``tolerance``."""
    costs = {
        "accuracy": before.accuracy - after.accuracy,
        "early stopping": before.early_stopping - after.early_stopping,
        "positives": after.positive_lost_rate - before.positive_lost_rate,
    }
    worst = max(costs, key=lambda name: costs[name])
    if costs[worst] > tolerance:
        raise ExportError(
            f"the exported network loses {100 * costs[worst]:.2f} points of {worst} on the data given, at most "
            f"{100 * tolerance:g} are accepted (accuracy {before.accuracy:.2%} -> {after.accuracy:.2%}, early stopping "
            f"{before.early_stopping:.2%} -> {after.early_stopping:.2%}, positives lost "
            f"{before.positive_lost_rate:.2%} -> {after.positive_lost_rate:.2%}). Use more and more varied calibration "
            "data, or export in float32."
        )
