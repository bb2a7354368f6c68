"""The objective of a gated network: the paper's equation 4.

Σᵢ [ αᵢ · gate lossᵢ + βᵢ · transmission costᵢ ] + η · prediction loss + ξ · penalty,    η = 1 − Σᵢ αᵢ
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from penstock.errors import LabelError, ObjectiveError
from penstock.gating.layers import ClassGate, transmission_cost
from penstock.gating.network import GatedNetwork, GatedOutput


class Loss(NamedTuple):
    """The total and its four terms, each before its weight: total is what is minimised, the rest is to be logged."""

    total: Tensor
    prediction: Tensor
    gate: Tensor
    transmission: Tensor
    penalty: Tensor


@dataclass(frozen=True)
class Objective:
    """Weigh accuracy, early stopping and compression against each other.

    Works in any training loop: ``objective(net, net(x), y).total.backward()``.

    Attributes:
        alpha: the weight of early stopping. A number is shared out evenly among the gates (Σα = alpha); a sequence
            gives each layer's own.
        beta: the weight of compression. A number holds for each layer; a sequence gives each layer's own.
        xi: the weight of the penalty γ, the sum of squares of the network's weights.
        p: the transmission cost is L_p; 2 in the paper.
        class_counts: how many samples of each class there are. Given, rare classes weigh more in the prediction loss,
            and the rarer of positives and negatives weighs more in each gate's loss (in that of a `ClassGate` rare
            classes do, too); on balanced data nothing changes.
    """

    alpha: float | Sequence[float] = 0.5
    beta: float | Sequence[float] = 0.55
    xi: float = 0.0
    p: float = 2.0
    class_counts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "class_counts"):
            if hasattr(value := getattr(self, name), "tolist"):  # of numpy, or of torch
                object.__setattr__(self, name, value.tolist())
        alphas = self.alpha if isinstance(self.alpha, Sequence) else [self.alpha]
        betas = self.beta if isinstance(self.beta, Sequence) else [self.beta]
        if any(not a >= 0 for a in alphas):
            raise ObjectiveError(f"alpha = {self.alpha} is not possible: each weight is 0 or more.")
        if not sum(alphas) < 1:
            raise ObjectiveError(
                f"Σα = {sum(alphas):g} is not possible: the gates' weights and the prediction's, η = 1 − Σα, share a "
                "sum of 1, so Σα must stay below 1. Lower alpha."
            )
        if any(not b >= 0 for b in betas):
            raise ObjectiveError(
                f"beta = {self.beta} is not possible: the weight of the transmission cost is 0 or more."
            )
        if not self.xi >= 0:
            raise ObjectiveError(f"xi = {self.xi} is not possible: the weight of the penalty is 0 or more.")
        if self.class_counts is not None and any(count < 0 for count in self.class_counts):
            raise ObjectiveError(f"class_counts = {list(self.class_counts)} is not possible: a count is 0 or more.")

    def __call__(self, net: GatedNetwork, out: GatedOutput, labels: Tensor) -> Loss:
        """Return the loss of one batch.

        Args:
            out: what ``net`` returned for the batch.
            labels: (batch,), the class of each sample.
        """
        check_labels(labels, net.spec.classes)
        labels = labels.long()
        alphas, betas = self.weights(net)
        prediction = F.cross_entropy(out.logits.float(), labels, weight=self.class_weights(net, labels))
        zero = prediction.new_zeros(())
        gates = [zero if logit is None else self.gate_loss(net, i, logit, labels) for i, logit in enumerate(out.gates)]
        costs = [
            zero if layer.compression is None else transmission_cost(layer.compression.phi, self.p)
            for layer in net.layers
        ]
        penalty = squared_weights(net) if self.xi else zero
        eta = 1 - sum(alphas)
        total = eta * prediction + self.xi * penalty
        total = total + sum(a * loss for a, loss in zip(alphas, gates, strict=True))
        total = total + sum(b * cost for b, cost in zip(betas, costs, strict=True))
        return Loss(total, prediction, sum(gates, zero), sum(costs, zero), penalty)

    def weights(self, net: GatedNetwork) -> tuple[list[float], list[float]]:
        """Return α and β of each layer; 0 where the layer lacks that half."""
        gated = [layer.gate is not None for layer in net.layers]
        compressed = [layer.compression is not None for layer in net.layers]
        alphas = _for_each("alpha", self.alpha, gated, share=True)
        return alphas, _for_each("beta", self.beta, compressed, share=False)

    def class_weights(self, net: GatedNetwork, labels: Tensor) -> Tensor | None:
        """Return the weight of each class in the prediction loss; None if all weigh the same."""
        if self.class_counts is None:
            return None
        if len(self.class_counts) != net.spec.classes:
            raise ObjectiveError(
                f"class_counts has {len(self.class_counts)} entries; this network has {net.spec.classes} classes."
            )
        counts = torch.tensor(self.class_counts, device=labels.device)
        if len(labels) and not counts[labels].all():
            unknown = sorted({label for label in labels.tolist() if not self.class_counts[label]})
            raise ObjectiveError(f"classes {unknown} occur, but class_counts says that there are none of them.")
        return balanced_weights(counts)

    def gate_loss(self, net: GatedNetwork, i: int, logit: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of layer i's gate, of which ``logit`` is what it said."""
        gate = net.layers[i].gate
        assert gate is not None
        wanted = gate.omega(labels, net.background)
        passes = gate.gate_logit(logit) if isinstance(gate, ClassGate) else logit
        weight = None
        if self.class_counts is not None:
            classes = torch.arange(len(self.class_counts), device=labels.device)
            counts = torch.tensor(self.class_counts, device=labels.device)
            interesting = gate.omega(classes, net.background)
            both = balanced_weights(torch.stack([counts[~interesting].sum(), counts[interesting].sum()]))
            weight = both[wanted.long()]
        loss = F.binary_cross_entropy_with_logits(passes, wanted.to(passes.dtype), weight=weight)
        if not isinstance(gate, ClassGate):
            return loss
        which = which_class_loss(logit, passes, labels, wanted)
        weights = self.class_weights(net, labels)
        return loss + gate.class_loss_weight * (which if weights is None else which * weights[labels]).mean()


def which_class_loss(logits: Tensor, passes: Tensor, labels: Tensor, wanted: Tensor) -> Tensor:
    """Return what it costs to know the class when it is known whether it is of interest: -log p(class | side).

    By the chain rule it is the cross-entropy of all classes without that of the two sides.

    Shapes:
        logits: (batch, classes); passes, labels, wanted: (batch,) -> (batch,)
    """
    sides = F.binary_cross_entropy_with_logits(passes, wanted.to(passes.dtype), reduction="none")
    return F.cross_entropy(logits, labels, reduction="none") - sides


def balanced_weights(counts: Tensor) -> Tensor:
    """Return class weights that give each class that occurs the same say, with a mean weight of 1 a sample.

    >>> balanced_weights(torch.tensor([90, 10])).tolist()
    [0.5555555820465088, 5.0]
    """
    counts = counts.float()
    present = counts > 0
    weights = counts.sum() / (present.sum() * counts.clamp(min=1))
    return weights * present


def squared_weights(net: GatedNetwork) -> Tensor:
    """Return the penalty γ: the sum of squares of all weight matrices and kernels; no biases, norms or masks."""
    masks = {id(layer.compression.phi) for layer in net.layers if layer.compression is not None}
    weights = [w for w in net.parameters() if w.ndim > 1 and id(w) not in masks]
    return torch.stack([w.pow(2).sum() for w in weights]).sum()


def check_labels(labels: Tensor, classes: int) -> None:
    """Refuse labels that are no classes."""
    if labels.ndim != 1 or labels.is_floating_point() or labels.dtype == torch.bool:
        raise LabelError(
            f"labels of shape {tuple(labels.shape)}, {labels.dtype}, came; give one class number for each sample: "
            "(batch,), int64."
        )
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        wrong = sorted({int(label) for label in labels.tolist() if not 0 <= label < classes})
        raise LabelError(
            f"labels {wrong[:10]} are outside the classes: this network tells {classes} apart, 0 … {classes - 1}."
        )


def _for_each(name: str, given: float | Sequence[float], has: list[bool], share: bool) -> list[float]:
    if isinstance(given, Sequence):
        if len(given) != len(has):
            raise ObjectiveError(
                f"{len(given)} values of {name} came for {len(has)} layers: give one number, or one for each layer."
            )
        return [float(value) if yes else 0.0 for value, yes in zip(given, has, strict=True)]
    each = given / max(1, sum(has)) if share else given
    return [float(each) if yes else 0.0 for yes in has]
