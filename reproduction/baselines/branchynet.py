"""BranchyNet: exits by entropy (Teerapittayanon, McDanel and Kung, arXiv:1709.01686).

A side branch predicts all classes. If the entropy of its softmax is below a threshold, the sample exits there with the
branch's label; all other samples continue.

Here an exit is a kind of gate, so training, calibration and evaluation share their code. A negative is stopped if it
exits as background, so the gate score of an exit is its relative entropy where it predicts background, and 1 where it
predicts any other class: a positive that exits early with a positive label is not lost. `exits` evaluates BranchyNet
itself, with the labels of its exits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from penstock.datasets.loading import Data, batches
from penstock.evaluation.outputs import collect
from penstock.gating.cascade import exit_stages
from penstock.gating.layers import Gate, LayerConfig
from penstock.gating.layers.head import Head, build_head
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective
from penstock.gating.surgery import gate
from penstock.gating.temporary_mode import temporary_mode

EPSILON = 1e-6
"""Distance that scores keep from 0 and 1, so that their logits are finite."""


def branchynet(
    model: nn.Module, example: Tensor, at: float | str | Sequence[float | str] = 0.4, *, background: int = 0
) -> GatedNetwork:
    """Insert BranchyNet exits into a copy of ``model``, where `gate` would insert gates."""
    net = gate(model, example, at, layer=LayerConfig("gate", head="linear"), background=background)
    for layer in net.layers:
        exit_ = Exit(build_head(layer.feature, layer.config), classes=net.spec.classes, background=background)
        layer.gate = exit_.to(example.device).train(layer.training)
    return net


class Exit(Gate):
    """A side branch: the head of a gate, with one output per class.

    Shapes:
        x: (batch, *feature) -> class logits: (batch, classes).
    """

    def __init__(self, head: Head, *, classes: int, background: int = 0):
        super().__init__(head)
        self.background = background
        self.score = nn.Linear(head.width, classes)

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return self.score(self.hidden(x, kept)).float()  # type: ignore[no-any-return]

    def gate_logit(self, out: Tensor) -> Tensor:
        entropy = relative_entropy(out)
        score = torch.where(out.argmax(1) == self.background, entropy, torch.ones_like(entropy))
        return score.clamp(EPSILON, 1 - EPSILON).logit()


def relative_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the softmax relative to its maximum: (batch, classes) -> (batch,) in [0, 1].

    >>> relative_entropy(torch.tensor([[0.0, 0.0], [200.0, 0.0]])).abs().tolist()
    [1.0, 0.0]
    """
    return torch.special.entr(logits.float().softmax(1)).sum(1) / log(logits.shape[1])


@dataclass(frozen=True)
class BranchyObjective(Objective):
    """Weighted sum of the cross-entropies of all exits and of the final output.

    Each of n exits has weight alpha / n, the final output 1 − alpha. With alpha = n / (n + 1) all weights are equal: ½
    for one exit, ⅔ for two.
    """

    def gate_loss(self, net: GatedNetwork, i: int, output: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of exit i."""
        return F.cross_entropy(output.float(), labels, weight=self.class_weights(net, labels))


class ExitOutcome(NamedTuple):
    """True label, predicted label and exit stage of each sample, from 1; the last one is the final output."""

    labels: Tensor
    predicted: Tensor
    exit_stage: Tensor


class ExitOutputs(NamedTuple):
    """Predictions of the exits and of the final output for each sample, before any threshold.

    Shapes:
        labels: (n,); predicted: (n, exits + 1), of each exit and of the final output; entropy: (n,) of each exit, as
        the logit that thresholds compare with.
    """

    labels: Tensor
    predicted: Tensor
    entropy: list[Tensor]


def collect_exit_outputs(net: GatedNetwork, data: Data, *, batch_size: int = 256) -> ExitOutputs:
    """Run every sample through all exits and the whole network."""
    device = next(net.parameters()).device

    def forward(x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        out = net(x.to(device))
        return out.logits.cpu(), [logits.cpu() for logits in out.gate_outputs if logits is not None]

    with temporary_mode(net, training=False):
        labels, logits, gates = collect(forward, batches(data, batch_size=batch_size))
    exit_logits = [logits for logits in gates if logits is not None]
    entropy = [relative_entropy(logits).clamp(EPSILON, 1 - EPSILON).logit().double() for logits in exit_logits]
    return ExitOutputs(labels, torch.stack([each.argmax(1) for each in (*exit_logits, logits)], 1), entropy)


def take_exits(outputs: ExitOutputs, thresholds: Sequence[float | None]) -> ExitOutcome:
    """Let each sample take the first exit whose entropy is below its threshold."""
    exit_stage = exit_stages(outputs.entropy, thresholds, samples=len(outputs.labels))
    predicted = outputs.predicted.gather(1, exit_stage.unsqueeze(1) - 1).squeeze(1)
    return ExitOutcome(outputs.labels, predicted, exit_stage)


def exits(net: GatedNetwork, data: Data, *, batch_size: int = 256) -> ExitOutcome:
    """Run BranchyNet with early exits, which predict labels of their own.

    The entropy thresholds of the exits are the thresholds of the network's gates.
    """
    return take_exits(collect_exit_outputs(net, data, batch_size=batch_size), net.thresholds)
