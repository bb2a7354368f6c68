"""The objective of a gated network: the paper's equation 4.

Σᵢ [ αᵢ · gate lossᵢ + βᵢ · transmission costᵢ ] + η · prediction loss + ξ · penalty,    η = 1 − Σᵢ αᵢ

With a teacher, such as the network before it was gated, part of each gate loss and of the prediction loss is the
distance to the teacher's softened probabilities (Hinton, Vinyals and Dean, arXiv:1503.02531).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from penstock.errors import LabelError, ObjectiveError
from penstock.gating.layers import ClassGate, transmission_cost
from penstock.gating.network import GatedNetwork, GatedOutput


class Loss(NamedTuple):
    """The total, which is minimised, and its four terms before their weights, to be logged."""

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
        alpha: the weight of early stopping. A number is divided evenly among the gates (Σα = alpha); a sequence has
            one for each layer.
        beta: the weight of compression. A number is used for every layer; a sequence has one for each layer.
        xi: the weight of the penalty γ, the sum of squares of the network's weights.
        p: the transmission cost is L_p; 2 in the paper.
        class_counts: the number of samples of each class. If given, rare classes weigh more in the prediction loss,
            and the rarer of positives and negatives weighs more in each gate's loss (rare classes too in that of a
            `ClassGate`); on balanced data nothing changes.
        label_smoothing: the share of each label that is spread evenly over all classes, in the prediction loss.
        distillation: the share of the teacher in the prediction loss and in the gates' losses, if there is a teacher.
        temperature: by which logits are divided before they are compared with the teacher's.
    """

    alpha: float | Sequence[float] = 0.5
    beta: float | Sequence[float] = 0.55
    xi: float = 0.0
    p: float = 2.0
    class_counts: Sequence[int] | None = None
    label_smoothing: float = 0.0
    distillation: float = 0.5
    temperature: float = 3.0

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "xi", "class_counts"):
            value = getattr(self, name)
            if hasattr(value, "tolist"):  # a numpy array or a torch tensor
                value = value.tolist()
                object.__setattr__(self, name, value)
            if any(not one >= 0 for one in _as_sequence(value)):
                raise ObjectiveError(f"{name} must be at least 0, got {value}.")
        for name in ("distillation", "label_smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                raise ObjectiveError(f"{name} must be between 0 and 1, got {getattr(self, name)}.")
        if not 0 < self.temperature < inf:
            raise ObjectiveError(f"temperature must be above 0, got {self.temperature}.")
        total = sum(_as_sequence(self.alpha))
        if not total < 1:
            raise ObjectiveError(f"Σα must be below 1, got {total:g}: the prediction loss gets η = 1 − Σα.")

    def __call__(self, net: GatedNetwork, out: GatedOutput, labels: Tensor, teacher: Tensor | None = None) -> Loss:
        """Return the loss of one batch.

        Args:
            net: the network.
            out: its output.
            labels: (batch,).
            teacher: (batch, classes), the teacher's logits; None without one.
        """
        check_labels(labels, net.spec.classes)
        labels = labels.long()
        alphas, betas = self.weights(net)
        prediction = F.cross_entropy(
            out.logits.float(),
            labels,
            weight=self.class_weights(net, labels),
            label_smoothing=self.label_smoothing,
        )
        zero = prediction.new_zeros(())
        outputs = list(enumerate(out.gate_outputs))
        gates = [zero if output is None else self.gate_loss(net, i, output, labels) for i, output in outputs]
        if teacher is not None and self.distillation:
            check_teacher(teacher, out.logits)
            prediction = self._mixed(prediction, self.distance(out.logits, teacher))
            gates = [
                loss if output is None else self._mixed(loss, self.gate_distance(net, i, output, teacher))
                for loss, (i, output) in zip(gates, outputs, strict=True)
            ]
        costs = [
            zero if layer.compression is None else transmission_cost(layer.compression.phi, self.p)
            for layer in net.layers
        ]
        penalty = squared_weights(net) if self.xi else zero
        total = (1 - sum(alphas)) * prediction + self.xi * penalty
        total = total + sum(a * loss for a, loss in zip(alphas, gates, strict=True))
        total = total + sum(b * cost for b, cost in zip(betas, costs, strict=True))
        return Loss(total, prediction, sum(gates, zero), sum(costs, zero), penalty)

    def _mixed(self, loss: Tensor, distance: Tensor) -> Tensor:
        return (1 - self.distillation) * loss + self.distillation * distance

    def distance(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Return the KL divergence from the teacher's class probabilities, both softened, times temperature²."""
        ours, theirs = (F.log_softmax(each.float() / self.temperature, 1) for each in (logits, teacher))
        return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * self.temperature**2

    def gate_distance(self, net: GatedNetwork, i: int, output: Tensor, teacher: Tensor) -> Tensor:
        """Return the KL divergence from what the teacher predicts to what layer i's gate does."""
        gate = net.layers[i].gate
        assert gate is not None
        if isinstance(gate, ClassGate):
            return self.distance(output, teacher)
        inside = gate.omega(torch.arange(teacher.shape[1], device=teacher.device), net.background)
        soft = teacher.float() / self.temperature
        theirs = soft[:, inside].logsumexp(1) - soft[:, ~inside].logsumexp(1)  # the teacher's log-odds of Ω
        ours = gate.gate_logit(output) / self.temperature
        pairs = (torch.stack([-each, each], 1) / 2 for each in (ours, theirs))
        ours, theirs = (F.log_softmax(each, 1) for each in pairs)
        return F.kl_div(ours, theirs, reduction="batchmean", log_target=True) * self.temperature**2

    def weights(self, net: GatedNetwork) -> tuple[list[float], list[float]]:
        """Return α and β of each layer; 0 where the layer lacks that half."""
        gated = [layer.gate is not None for layer in net.layers]
        compressed = [layer.compression is not None for layer in net.layers]
        alpha = self.alpha if isinstance(self.alpha, Sequence) else self.alpha / max(1, sum(gated))
        return _for_each("alpha", alpha, gated), _for_each("beta", self.beta, compressed)

    def class_weights(self, net: GatedNetwork, labels: Tensor) -> Tensor | None:
        """Return the weight of each class in the prediction loss; None if all weigh the same."""
        if self.class_counts is None:
            return None
        if len(self.class_counts) != net.spec.classes:
            raise ObjectiveError(f"class_counts must have {net.spec.classes} entries, got {len(self.class_counts)}.")
        counts = torch.tensor(self.class_counts, device=labels.device)
        if len(labels) and not counts[labels].all():
            unknown = sorted({label for label in labels.tolist() if not self.class_counts[label]})
            raise ObjectiveError(f"class_counts is 0 for classes {unknown}, which occur in the data: count them too.")
        return balanced_weights(counts)

    def gate_loss(self, net: GatedNetwork, i: int, output: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of layer i's gate, given its output."""
        gate = net.layers[i].gate
        assert gate is not None
        positive = gate.omega(labels, net.background)
        binary = gate.gate_logit(output)
        weight = None
        if self.class_counts is not None:
            classes = torch.arange(len(self.class_counts), device=labels.device)
            counts = torch.tensor(self.class_counts, device=labels.device)
            inside = gate.omega(classes, net.background)
            weight = balanced_weights(torch.stack([counts[~inside].sum(), counts[inside].sum()]))[positive.long()]
        target = positive.to(binary.dtype)
        loss = F.binary_cross_entropy_with_logits(binary, target, weight=weight)
        if not isinstance(gate, ClassGate):
            return loss
        # -log p(class | positive or not): by the chain rule, the loss of all classes without the binary loss
        binary_loss = F.binary_cross_entropy_with_logits(binary, target, reduction="none")
        class_loss = F.cross_entropy(output, labels, reduction="none") - binary_loss
        weights = self.class_weights(net, labels)
        return loss + gate.class_loss_weight * (class_loss if weights is None else class_loss * weights[labels]).mean()


def balanced_weights(counts: Tensor) -> Tensor:
    """Return weights that give every class that occurs the same total, with a mean of 1 per sample.

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
    """Raise a LabelError unless each label is one of the classes."""
    if labels.ndim != 1 or labels.is_floating_point() or labels.dtype == torch.bool:
        raise LabelError(f"expected integer labels of shape (batch,), got {tuple(labels.shape)}, {labels.dtype}.")
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
        wrong = sorted({int(label) for label in labels.tolist() if not 0 <= label < classes})
        raise LabelError(f"labels must be one of the {classes} classes 0 … {classes - 1}, got {wrong[:10]}.")


def check_teacher(teacher: Tensor, logits: Tensor) -> None:
    """Raise an ObjectiveError unless the teacher has the same classes."""
    if teacher.shape != logits.shape:
        raise ObjectiveError(
            f"expected a teacher with logits {tuple(logits.shape)}, like the network's, got {tuple(teacher.shape)}. "
            "Use the network before it was gated, or another one for the same classes."
        )


def _as_sequence(value: float | Sequence[float] | None) -> Sequence[float]:
    if value is None:
        return []
    return value if isinstance(value, Sequence) else [value]


def _for_each(name: str, given: float | Sequence[float], present: list[bool]) -> list[float]:
    values = given if isinstance(given, Sequence) else [given] * len(present)
    if len(values) != len(present):
        raise ObjectiveError(f"{name} must be one number or one for each of {len(present)} layers, got {len(values)}.")
    return [float(value) if yes else 0.0 for value, yes in zip(values, present, strict=True)]
