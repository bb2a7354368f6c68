"""Evaluate a gated network: every metric of the paper, from one pass over a data set."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.datasets.loading import Data
from penstock.errors import DataError, StorageError
from penstock.evaluation import metrics
from penstock.evaluation.cost import gated_cost, mean_at, plain_cost
from penstock.evaluation.outputs import check_both_kinds, collect_outputs
from penstock.gating.cascade import exit_stages, is_stopped
from penstock.gating.network import GatedNetwork
from penstock.runtime.files import write_atomically

BINS, MAX_LOGIT = 40, 8.0
CURVE_POINTS = 201


@dataclass(frozen=True)
class GateEvaluation:
    """One gate, evaluated alone on all samples, with its own positives.

    Attributes:
        reached: the share of all samples that reach this gate in the cascade.
        stopped: the share of all samples that the cascade stops at this gate.
        curve: [share of negatives that pass, share of positives that pass], along all thresholds.
        histogram: gate logits in 40 equal bins of [-8, 8], those beyond at its ends: counts of [negatives, positives].
    """

    name: str
    feature: tuple[int, ...]
    values: int
    kept: int
    dropout_rate: float
    reached: float
    stopped: float
    threshold: float | None
    stop_rate: float | None
    negative_pass_through_rate: float | None
    positive_lost_rate: float | None
    negative_correction_rate: float | None
    auc: float | None
    curve: tuple[tuple[float, ...], tuple[float, ...]] | None
    histogram: tuple[tuple[int, ...], tuple[int, ...]] | None


@dataclass(frozen=True)
class ClassEvaluation:
    """One class: the share of its samples that get their label, with and without gates, and that are stopped."""

    label: int
    name: str
    samples: int
    recall: float
    recall_open: float
    stopped: float


@dataclass(frozen=True)
class CostEvaluation:
    """Mean cost of a sample in a stream; ``negatives_per_positive`` is None for the data's own ratio."""

    negatives_per_positive: float | None
    macs: float
    payload_bytes: float
    plain_macs: int
    plain_payload_bytes: int


@dataclass(frozen=True)
class Evaluation:
    """Every metric of the paper. Prints as a table; `save` writes JSON; `plot` draws it.

    The rates of the cascade (all active gates one after another) stand here, those of each gate alone in ``gates``.
    """

    samples: int
    positives: int
    accuracy: float
    accuracy_open: float
    early_stopping: float
    activation_sparsity: float
    stop_rate: float
    negative_pass_through_rate: float
    positive_lost_rate: float
    negative_correction_rate: float
    gates: tuple[GateEvaluation, ...]
    classes: tuple[ClassEvaluation, ...]
    costs: tuple[CostEvaluation, ...]
    guarantee: str | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_atomically(Path(path), json.dumps(self.to_json(), indent=1).encode())

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read what `save` wrote."""
        try:
            raw = json.loads(Path(path).read_text())
            parts = {"gates": GateEvaluation, "classes": ClassEvaluation, "costs": CostEvaluation}
            known: dict[str, Any] = {
                key: tuple(kind(**_tuples(one)) for one in raw.pop(key)) for key, kind in parts.items()
            }
            return cls(**raw, **known)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{path} is not an evaluation that Penstock wrote: {error}") from error

    def plot(self, folder: str | Path, net: GatedNetwork | None = None) -> list[Path]:
        """Draw ROC curves, score histograms and, given the network, its masks; return the files written."""
        from penstock.evaluation.plots import plot_evaluation

        return plot_evaluation(self, Path(folder), net)

    def __str__(self) -> str:
        from penstock.evaluation.tables import evaluation_tables
        from penstock.gating.tables import render

        return render(*evaluation_tables(self))


def evaluate(
    net: GatedNetwork,
    data: Data,
    *,
    ratios: Sequence[float] = (9, 99),
    class_names: Sequence[str] | None = None,
    active: Collection[int] | None = None,
    batch_size: int = 256,
) -> Evaluation:
    """Compute all metrics on ``data``; the network is unchanged.

    Args:
        data: a DataLoader, a Dataset or a pair of tensors (x, y).
        ratios: negatives per positive of streams to compute the mean cost for, besides the data's own.
        class_names: for the table of classes; default: their numbers.
        active: the layers whose gates are on; None for all.
    """
    active = net.active(active)
    if not all(ratio > 0 for ratio in ratios):
        raise DataError(f"ratios are negatives per positive and must be above 0, got {list(ratios)}")
    labels, logits, gates = collect_outputs(net, data, batch_size=batch_size, progress="evaluating")
    positive = net.positive(labels, active)
    check_both_kinds(positive, "evaluate")
    exit_stage = exit_stages(gates, net.thresholds, samples=len(labels), active=active)
    stopped = exit_stage < len(net.stages)
    open_label = logits.argmax(1)
    label = open_label.masked_fill(stopped, net.background)
    mistaken = open_label != labels
    transmitted = sum(layer.transmitted_values for layer in net.layers)
    values = sum(prod(layer.feature) for layer in net.layers)
    return Evaluation(
        samples=len(labels),
        positives=int(positive.sum()),
        accuracy=metrics.accuracy(label, labels),
        accuracy_open=metrics.accuracy(open_label, labels),
        early_stopping=metrics.early_stopping(stopped, positive),
        activation_sparsity=1 - transmitted / values if values else 0.0,
        stop_rate=metrics.stop_rate(stopped),
        negative_pass_through_rate=metrics.negative_pass_through_rate(stopped, positive),
        positive_lost_rate=metrics.positive_lost_rate(stopped, positive),
        negative_correction_rate=metrics.negative_correction_rate(stopped, positive, mistaken),
        gates=tuple(_gate(net, i, gates[i], exit_stage, labels, mistaken) for i in range(len(net.layers))),
        classes=_classes(labels, label, open_label, stopped, class_names),
        costs=_costs(net, exit_stage, positive, active, ratios),
        guarantee=None if net.guarantee is None or not _is_guaranteed(net, active) else str(net.guarantee),
    )


def _is_guaranteed(net: GatedNetwork, active: Collection[int]) -> bool:
    """Return whether the guarantee covers the positives of the active gates."""
    chosen = [i for i, at in enumerate(net.thresholds) if at is not None and isfinite(at)]
    classes = torch.arange(net.spec.classes)
    on = [i for i in active if i in chosen]
    return bool(on) and torch.equal(net.positive(classes, chosen), net.positive(classes, active))


def _gate(
    net: GatedNetwork, i: int, logit: Tensor | None, exit_stage: Tensor, labels: Tensor, mistaken: Tensor
) -> GateEvaluation:
    layer = net.layers[i]
    reached = exit_stage > i
    metrics_of_gate: dict[str, Any] = dict.fromkeys(
        [
            "threshold",
            "stop_rate",
            "negative_pass_through_rate",
            "positive_lost_rate",
            "negative_correction_rate",
            "auc",
            "curve",
            "histogram",
        ]
    )
    if layer.gate is not None and logit is not None:
        positive = layer.gate.omega(labels, net.background)
        stopped = is_stopped(logit, layer.gate.threshold.cpu())
        check_both_kinds(positive, f"evaluate gate {i} of")
        metrics_of_gate = {
            "threshold": _finite(layer.gate.threshold.item()),
            "stop_rate": metrics.stop_rate(stopped),
            "negative_pass_through_rate": metrics.negative_pass_through_rate(stopped, positive),
            "positive_lost_rate": metrics.positive_lost_rate(stopped, positive),
            "negative_correction_rate": metrics.negative_correction_rate(stopped, positive, mistaken),
            "auc": metrics.auc(logit, positive),
            "curve": _sampled(*metrics.roc(logit, positive)),
            "histogram": (_histogram(logit[~positive]), _histogram(logit[positive])),
        }
    return GateEvaluation(
        name=net.spec.at[i],
        feature=layer.feature,
        values=prod(layer.feature),
        kept=layer.transmitted_values,
        dropout_rate=1 - layer.density,
        reached=reached.double().mean().item(),
        stopped=(exit_stage == i + 1).double().mean().item(),
        **metrics_of_gate,
    )


def _classes(
    labels: Tensor, label: Tensor, open_label: Tensor, stopped: Tensor, names: Sequence[str] | None
) -> tuple[ClassEvaluation, ...]:
    rows = []
    for value in labels.unique().tolist():
        mine = labels == value
        name = names[value] if names is not None and value < len(names) else str(value)
        recall, recall_open = (
            metrics.accuracy(label[mine], labels[mine]),
            metrics.accuracy(open_label[mine], labels[mine]),
        )
        rows.append(
            ClassEvaluation(value, name, int(mine.sum()), recall, recall_open, metrics.stop_rate(stopped[mine]))
        )
    return tuple(rows)


def _costs(
    net: GatedNetwork, exit_stage: Tensor, positive: Tensor, active: Collection[int], ratios: Sequence[float]
) -> tuple[CostEvaluation, ...]:
    cost, plain = gated_cost(net, exit_stage, active), plain_cost(net)
    rows = []
    for ratio in (None, *ratios):
        share = None if ratio is None else 1 / (1 + ratio)
        macs, payload = mean_at(cost.macs, positive, share), mean_at(cost.payload_bytes, positive, share)
        rows.append(CostEvaluation(ratio, macs, payload, *plain))
    return tuple(rows)


def _sampled(false: Tensor, true: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return at most `CURVE_POINTS` points of a curve."""
    pick = torch.linspace(0, len(false) - 1, min(len(false), CURVE_POINTS)).round().long()
    return tuple(false[pick].tolist()), tuple(true[pick].tolist())


def _histogram(logit: Tensor) -> tuple[int, ...]:
    return tuple(int(count) for count in torch.histc(logit.clamp(-MAX_LOGIT, MAX_LOGIT), BINS, -MAX_LOGIT, MAX_LOGIT))


def _finite(threshold: float) -> float | None:
    """Return None for an open gate: JSON has no infinity."""
    return threshold if isfinite(threshold) else None


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    return {key: _tuples(one) for key, one in value.items()} if isinstance(value, dict) else value
