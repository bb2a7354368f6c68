"""Meters that only keep sums, so that several processes can add them up, and what a sick gate looks like on them."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC

from penstock.evaluation.outputs import check_both_kinds
from penstock.gating.cascade import is_stopped
from penstock.gating.network import GatedNetwork, GatedOutput
from penstock.gating.objective import Loss

AUC_STEPS = 1000
BLIND = 0.05  # an AUC this near to ½ is that of a gate that sees nothing
NEARLY_ALL = 0.995


class EpochMetrics(Metric):
    """Losses, accuracy, and each gate's stops, over an epoch and over all processes."""

    full_state_update = False
    losses: Tensor
    samples: Tensor
    correct: Tensor
    correct_open: Tensor
    seen: Tensor
    stops: Tensor
    cascade: Tensor

    def __init__(self, net: GatedNetwork):
        super().__init__()
        object.__setattr__(self, "_net", net)  # looked at, not owned: its weights belong to the training
        gates = len(net.layers)
        for name, shape in {
            "losses": (len(Loss._fields),),
            "samples": (),
            "correct": (),
            "correct_open": (),
            "seen": (gates, 2),  # [negatives, positives] that each gate has judged
            "stops": (gates, 2),
            "cascade": (2, 2),  # [negatives, positives] x [seen, stopped by any gate]
        }.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")
        self.curves = torch.nn.ModuleList([BinaryAUROC(thresholds=AUC_STEPS) for _ in range(gates)])

    def update(self, out: GatedOutput, labels: Tensor, loss: Loss) -> None:
        """Add a batch."""
        net: GatedNetwork = self._net  # type: ignore[assignment]
        self.losses += torch.stack([term.detach().double() for term in loss]) * len(labels)
        self.samples += len(labels)
        predicted = out.logits.detach().argmax(1)
        stopped = torch.zeros_like(labels, dtype=torch.bool)
        for i, (layer, said) in enumerate(zip(net.layers, out.gates, strict=True)):
            if layer.gate is None or said is None:
                continue
            logit = layer.gate.gate_logit(said.detach())
            mine, wanted = is_stopped(logit, layer.gate.threshold), layer.gate.omega(labels, net.background)
            stopped |= mine
            for kind, which in enumerate((~wanted, wanted)):
                self.seen[i, kind] += which.sum()
                self.stops[i, kind] += (which & mine).sum()
            self.curves[i].update(logit.sigmoid(), wanted.long())  # type: ignore[operator]
        positive = net.positive(labels)
        for kind, which in enumerate((~positive, positive)):
            self.cascade[kind, 0] += which.sum()
            self.cascade[kind, 1] += (which & stopped).sum()
        self.correct += (predicted.masked_fill(stopped, net.background) == labels).sum()
        self.correct_open += (predicted == labels).sum()

    def compute(self) -> dict[str, float]:
        """Return the epoch's figures by name; what no sample was seen for is left out."""
        terms = dict(zip(("loss", *Loss._fields[1:]), (self.losses / self.samples).tolist(), strict=True))
        figures = terms | {
            "accuracy": (self.correct / self.samples).item(),
            "accuracy_open": (self.correct_open / self.samples).item(),
        }
        net: GatedNetwork = self._net  # type: ignore[assignment]
        if net.active():
            figures |= _shares(("early_stopping", "positive_lost_rate"), self.cascade[:, 1], self.cascade[:, 0])
        for i, curve in enumerate(self.curves):
            if self.seen[i].min() > 0:
                figures[f"auc/{i}"] = curve.compute().item()  # type: ignore[operator]
                names = (f"early_stopping/{i}", f"positive_lost_rate/{i}")
                figures |= _shares(names, self.stops[i], self.seen[i])
        return figures

    def check_both_kinds(self) -> None:
        """Refuse an epoch in which no positive, or no negative, was seen."""
        net: GatedNetwork = self._net  # type: ignore[assignment]
        if net.active():
            negatives, positives = self.cascade[:, 0].tolist()
            check_both_kinds(torch.tensor([True] * bool(positives) + [False] * bool(negatives)), "train")

    def reset(self) -> None:
        """Start a new epoch."""
        super().reset()
        for curve in self.curves:
            curve.reset()  # type: ignore[operator]


def collapse(figures: dict[str, float], net: GatedNetwork) -> list[str]:
    """Say which gates and masks have stopped doing their work, and what to do; figures are those of `EpochMetrics`."""
    findings = []
    for i, layer in enumerate(net.layers):
        name = net.spec.at[i]
        area = figures.get(f"auc/{i}")
        early, lost = figures.get(f"early_stopping/{i}", 0.5), figures.get(f"positive_lost_rate/{i}", 0.5)
        if area is not None and abs(area - 0.5) < BLIND:
            findings.append(
                f"gate {i} ({name!r}) sees nothing: its AUC is {area:.3f}, and ½ is chance. Train longer, raise alpha, "
                "lower the rate, or put it deeper."
            )
        elif min(early, lost) > NEARLY_ALL:
            findings.append(
                f"gate {i} ({name!r}) stops everything: {lost:.1%} of the positives too. Its AUC is {area:.3f}: give "
                "class_counts to the objective if positives are rare, or calibrate."
            )
        elif max(early, lost) < 1 - NEARLY_ALL:
            findings.append(
                f"gate {i} ({name!r}) lets everything pass: {1 - early:.1%} of the negatives too. Its AUC is "
                f"{area:.3f}: give class_counts to the objective if negatives are rare, or calibrate."
            )
        if layer.density == 0:
            findings.append(
                f"mask {i} ({name!r}) is empty: nothing flows on, and every sample looks alike behind it. Lower beta, "
                "or its share for this layer."
            )
    return findings


def _shares(names: tuple[str, str], part: Tensor, whole: Tensor) -> dict[str, float]:
    return {name: (p / w).item() for name, p, w in zip(names, part, whole, strict=True) if w > 0}
