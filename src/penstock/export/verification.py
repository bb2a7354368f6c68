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
from penstock.evaluation.outputs import Outputs, collect, collect_outputs
from penstock.export.precision import Int8, Precision
from penstock.gating.cascade import exit_stages
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines import Engine, Output, load_engines

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


def largest_loss(before: Decisions, after: Decisions, permitted: float = 0.0) -> tuple[float, str]:
    """Return by how much the decisions are worse in the worst respect, and its name.

    Args:
        permitted: the share of the positives that recalibrated thresholds may lose; to lose no more is not worse.
    """
    return max(
        (before.accuracy - after.accuracy, "accuracy"),
        (before.early_stopping - after.early_stopping, "early stopping"),
        (after.positive_lost_rate - max(before.positive_lost_rate, permitted), "positives"),
    )


def compare(net: GatedNetwork, bundle: Bundle, data: Data, precision: Precision) -> tuple[Decisions, Decisions]:
    """Return the decisions of PyTorch and of the bundle on the same data.

    Raises:
        ExportError: when the bundle's are worse by more than the tolerance.
    """
    thresholds = [None if stage.gate is None else stage.gate.threshold for stage in bundle.manifest.stages[:-1]]
    before = decide(net, collect_outputs(net, data, progress="PyTorch"), net.thresholds)
    outputs = collect_engine_outputs(load_engines(bundle, threads=0), data, progress="exported")
    after = decide(net, outputs, thresholds)
    loss, name = largest_loss(before, after, _permitted(bundle, precision))
    if loss > precision.tolerance:
        at_own_thresholds = largest_loss(before, decide(net, outputs, net.thresholds))[0]
        changes = "accuracy {0.accuracy:.2%} -> {1.accuracy:.2%}, early stopping {0.early_stopping:.2%} -> "
        changes += "{1.early_stopping:.2%}, positives lost {0.positive_lost_rate:.2%} -> {1.positive_lost_rate:.2%}"
        raise ExportError(
            f"the exported network loses {100 * loss:.2f} points of {name} on the data given, at most "
            f"{100 * precision.tolerance:g} are accepted ({changes.format(before, after)}). "
            f"{_cause(net, bundle, precision, at_own_thresholds)} Or raise the tolerance."
        )
    return before, after


def _permitted(bundle: Bundle, precision: Precision) -> float:
    """Return the positive loss for which the bundle's thresholds were recalibrated; 0 if they are the network's."""
    guarantee = bundle.manifest.guarantee
    recalibrated = guarantee is not None and isinstance(precision, Int8)
    return guarantee.max_positive_loss if recalibrated else 0.0  # type: ignore[union-attr]


def _cause(net: GatedNetwork, bundle: Bundle, precision: Precision, at_own_thresholds: float) -> str:
    """Say why an exported network decides worse, and what to do, given its loss at the thresholds before the export."""
    if not isinstance(precision, Int8):
        return "Cut the network elsewhere, or send float32 values."
    if at_own_thresholds <= precision.tolerance:
        assert precision.held_out is not None  # else thresholds are the network's own
        labels = torch.cat([y for _, y in batches(precision.held_out, batch_size=256)])
        return (
            "The cause are thresholds recalibrated on few positives, without that it would be accepted: held_out has "
            f"{int(net.positive(labels).sum())} positives, give more."
        )
    data = precision.calibration_data
    before = decide(net, collect_outputs(net, data), net.thresholds)
    after = decide(net, collect_engine_outputs(load_engines(bundle, threads=0), data), net.thresholds)
    if largest_loss(before, after)[0] <= precision.tolerance:
        return (
            "The cause are the ranges of the activations, on the calibration data it would be accepted: give more and "
            "more varied calibration data."
        )
    return "The cause are the 8 bits, it is as bad on the calibration data itself: export in float32."
