"""Metrics of an epoch, kept as sums that several processes can add up, and how they show a collapsed gate."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC

from penstock.evaluation.outputs import check_both_kinds
from penstock.gating.cascade import is_stopped
from penstock.gating.network import GatedNetwork, GatedOutput
from penstock.gating.objective import Loss

AUC_STEPS = 1000
CHANCE_MARGIN = 0.05  # a gate whose AUC is this close to ½ is guessing
NEARLY_ALL = 0.995
MEAN_OF = 10  # batches whose mean prediction loss is watched


class EpochMetrics(Metric):
    """Losses, accuracy, and each gate's stops, over an epoch and over all processes."""

    full_state_update = False
    _net: GatedNetwork
    losses: Tensor
    samples: Tensor
    correct: Tensor
    correct_open: Tensor
    counts: Tensor

    def __init__(self, net: GatedNetwork):
        super().__init__()
        object.__setattr__(self, "_net", net)  # not a submodule: its weights belong to the training module
        gates = len(net.layers)
        for name, shape in {
            "losses": (len(Loss._fields),),
            "samples": (),
            "correct": (),
            "correct_open": (),
            "counts": (gates + 1, 2, 2),  # each gate, and all together x negatives, positives x seen, stopped
        }.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self.curves = torch.nn.ModuleList([BinaryAUROC(thresholds=AUC_STEPS) for _ in range(gates)])

    def update(self, out: GatedOutput, labels: Tensor, loss: Loss) -> None:
        """Add a batch."""
        net = self._net
        self.losses += torch.stack([term.detach().double() for term in loss]) * len(labels)
        self.samples += len(labels)
        predicted = out.logits.detach().argmax(1)
        stopped = torch.zeros_like(labels, dtype=torch.bool)
        for i, (layer, gate_logit) in enumerate(zip(net.layers, out.gates, strict=True)):
            if layer.gate is None or gate_logit is None:
                continue
            logit = gate_logit.detach()
            stopped_here = is_stopped(logit, layer.gate.threshold)
            positive = layer.gate.omega(labels, net.background)
            stopped |= stopped_here
            self._count(i, positive, stopped_here)
            self.curves[i].update(logit.sigmoid(), positive.long())  # type: ignore[operator]
        self._count(-1, net.positive(labels), stopped)
        self.correct += (predicted.masked_fill(stopped, net.background) == labels).sum()
        self.correct_open += (predicted == labels).sum()

    def _count(self, row: int, positive: Tensor, stopped: Tensor) -> None:
        for kind, which in enumerate((~positive, positive)):
            self.counts[row, kind, 0] += which.sum()
            self.counts[row, kind, 1] += (which & stopped).sum()

    def compute(self) -> dict[str, float]:
        """Return the epoch's metrics by name, without those that no sample contributes to."""
        metrics = dict(zip(("loss", *Loss._fields[1:]), (self.losses / self.samples).tolist(), strict=True))
        metrics["accuracy"] = (self.correct / self.samples).item()
        metrics["accuracy_open"] = (self.correct_open / self.samples).item()
        if self._net.active():
            metrics |= _stop_rates(self.counts[-1], suffix="")
        for i, curve in enumerate(self.curves):
            if self.counts[i, :, 0].min() > 0:
                metrics[f"auc/{i}"] = curve.compute().item()  # type: ignore[operator]
                metrics |= _stop_rates(self.counts[i], suffix=f"/{i}")
        return metrics

    def check_both_kinds(self) -> None:
        """Raise a LabelError if the epoch had no positive or no negative sample."""
        if self._net.active():
            negatives, positives = self.counts[-1, :, 0].tolist()
            check_both_kinds(torch.tensor([True] * bool(positives) + [False] * bool(negatives)), "train")

    def reset(self) -> None:
        """Start a new epoch."""
        super().reset()
        for curve in self.curves:
            curve.reset()  # type: ignore[operator]


class LossRise:
    """Notices a sudden rise of the prediction loss, as when a learning rate tears down a pretrained network."""

    def __init__(self) -> None:
        self.mean = self.lowest = inf
        self._batches = 0

    def add(self, loss: float) -> str | None:
        """Add the loss of a batch; return the finding when its moving mean has risen far above its lowest value."""
        self._batches += 1
        self.mean = loss if self._batches == 1 else self.mean + (loss - self.mean) / min(self._batches, MEAN_OF)
        if self._batches < MEAN_OF:
            return None
        self.lowest = min(self.lowest, self.mean)
        if self.mean <= max(2 * self.lowest, self.lowest + 0.3):
            return None
        return (
            f"the prediction loss rises: from {self.lowest:.3g} to {self.mean:.3g}. The learning rate is too high for "
            "this network: lower the optimizer's rate or network_rate, or set clip=1.0"
        )


def collapse(metrics: dict[str, float], net: GatedNetwork) -> list[str]:
    """Return which gates and masks have collapsed, and what to do, given the metrics of `EpochMetrics`."""
    findings = []
    for i, layer in enumerate(net.layers):
        gate, mask = f"gate {i} ({net.spec.at[i]!r})", f"mask {i} ({net.spec.at[i]!r})"
        auc = metrics.get(f"auc/{i}")
        stopped, lost = metrics.get(f"early_stopping/{i}", 0.5), metrics.get(f"positive_lost_rate/{i}", 0.5)
        if auc is not None and abs(auc - 0.5) < CHANCE_MARGIN:
            findings.append(
                f"{gate} separates nothing: its AUC is {auc:.3f}, and 0.5 is chance. Train longer, raise alpha, lower "
                "the learning rate, or place it deeper."
            )
        elif min(stopped, lost) > NEARLY_ALL:
            findings.append(
                f"{gate} stops everything: {lost:.1%} of the positives too, with an AUC of {auc:.3f}. Pass "
                "class_counts to the objective if positives are rare, or calibrate."
            )
        elif max(stopped, lost) < 1 - NEARLY_ALL:
            findings.append(
                f"{gate} passes everything: {1 - stopped:.1%} of the negatives too, with an AUC of {auc:.3f}. Pass "
                "class_counts to the objective if negatives are rare, or calibrate."
            )
        if layer.density == 0:
            findings.append(f"{mask} is empty: all samples look the same after it. Lower beta for this layer.")
    return findings


def _stop_rates(counts: Tensor, suffix: str) -> dict[str, float]:
    kinds = zip(("early_stopping", "positive_lost_rate"), counts, strict=True)
    return {name + suffix: (stopped / seen).item() for name, (seen, stopped) in kinds if seen > 0}
