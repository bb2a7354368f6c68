"""BranchyNet: exits by entropy (Teerapittayanon, McDanel and Kung, arXiv:1709.01686).

A side branch classifies into all classes. Where the entropy of its softmax is below a threshold the sample leaves the
network there, with the branch's label; all other samples go on.

Here an exit is a kind of gate, so that training, calibration and evaluation are the same code for both. To stop a
negative means: it leaves by the exit, as background. So the exit's pass score is its entropy, in parts of the highest
one, where it says background, and 1 where it says anything else: a positive that leaves early with a positive's label
is answered, not lost. `exits` counts what BranchyNet itself does, with the labels of its exit.
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
from penstock.gating.layers import Gate, LayerConfig
from penstock.gating.layers.config import Granularity
from penstock.gating.mode import mode
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective
from penstock.gating.surgery import gate

SURE = 1e-6
"""How near a pass score comes to 0 and 1: its logit stays finite."""


def branchynet(
    model: nn.Module, example: Tensor, at: float | str | Sequence[float | str] = 0.4, *, background: int = 0
) -> GatedNetwork:
    """Put BranchyNet exits into a copy of ``model``, at the places where `gate` would put gates."""
    net = gate(model, example, at, layer=LayerConfig("gate"), background=background)
    for layer in net.layers:
        exit_ = Exit(layer.feature, layer.config.granularity, classes=net.plan.classes, background=background)
        layer.gate = exit_.to(example.device).train(layer.training)
    return net


class Exit(Gate):
    """A side branch: the gate's small head, with an output for each class.

    Shapes:
        x: (batch, *feature) -> class logits: (batch, classes).
    """

    def __init__(
        self,
        feature: tuple[int, ...],
        granularity: Granularity = "element",
        *,
        classes: int,
        background: int = 0,
        width: int = 16,
    ):
        super().__init__(feature, granularity, width=width)
        self.background = background
        self.score = nn.Linear(width, classes)

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return self.score(self.hidden(x, kept)).float()  # type: ignore[no-any-return]

    def gate_logit(self, out: Tensor) -> Tensor:
        sure = relative_entropy(out)
        score = torch.where(out.argmax(1) == self.background, sure, torch.ones_like(sure))
        return score.clamp(SURE, 1 - SURE).logit()

    def macs(self, kept: int) -> int:
        return (kept + self.score.out_features) * self.width


def relative_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the softmax, in parts of the highest one: (batch, classes) -> (batch,) in [0, 1].

    >>> relative_entropy(torch.tensor([[0.0, 0.0], [200.0, 0.0]])).abs().tolist()
    [1.0, 0.0]
    """
    return torch.special.entr(logits.float().softmax(1)).sum(1) / log(logits.shape[1])


@dataclass(frozen=True)
class BranchyObjective(Objective):
    """The losses of all exits and of the end, each a cross-entropy over all classes, weighed as `Objective` does.

    Of n exits each weighs alpha / n, and the end 1 − alpha. All weigh alike with alpha = n / (n + 1): ½ for one exit,
    ⅔ for two.
    """

    def gate_loss(self, net: GatedNetwork, i: int, logit: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of exit i."""
        return F.cross_entropy(logit.float(), labels, weight=self.class_weights(net, labels))


class ExitOutcome(NamedTuple):
    """What BranchyNet says of each sample: its label, and the exit it left by (-1 for the end)."""

    labels: Tensor
    predicted: Tensor
    left_at: Tensor


class Heard(NamedTuple):
    """What the exits and the end say of each sample, before any threshold.

    Shapes:
        labels, at_end: (n,); at_exits, entropy: (n, exits), the entropy as it is held against a threshold.
    """

    labels: Tensor
    at_end: Tensor
    at_exits: Tensor
    entropy: Tensor


@torch.no_grad()
def hear(net: GatedNetwork, data: Data, *, batch_size: int = 256) -> Heard:
    """Ask all exits and the end about every sample."""
    device = next(net.parameters()).device
    rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    with mode(net, training=False):
        for x, y in batches(data, batch_size=batch_size):
            out = net(x.to(device))
            said = [logits.cpu() for logits in out.gates if logits is not None]
            sure = [relative_entropy(logits).clamp(SURE, 1 - SURE).logit().double() for logits in said]
            at_exits = torch.stack([logits.argmax(1) for logits in said], 1)
            rows.append((y.cpu(), out.logits.argmax(1).cpu(), at_exits, torch.stack(sure, 1)))
    return Heard(*(torch.cat(column) for column in zip(*rows, strict=True)))


def leave(heard: Heard, thresholds: Sequence[float | None]) -> ExitOutcome:
    """Let each sample leave by the first exit that is sure of it: whose entropy is below its threshold."""
    predicted, left_at = heard.at_end, torch.full_like(heard.at_end, -1)
    for i in reversed(range(len(thresholds))):
        threshold = thresholds[i]
        assert threshold is not None
        sure = heard.entropy[:, i] < threshold
        predicted, left_at = torch.where(sure, heard.at_exits[:, i], predicted), left_at.masked_fill(sure, i)
    return ExitOutcome(heard.labels, predicted, left_at)


def exits(net: GatedNetwork, data: Data, *, batch_size: int = 256) -> ExitOutcome:
    """Run BranchyNet as it is meant: whatever an exit is sure of leaves there, with the exit's label.

    The exits' entropy thresholds are those of the network's gates.
    """
    return leave(hear(net, data, batch_size=batch_size), net.thresholds)
