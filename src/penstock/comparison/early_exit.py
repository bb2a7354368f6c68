"""An early exit, as BranchyNet has it (Teerapittayanon, McDanel and Kung, arXiv:1709.01686), in place of a gate.

A side branch predicts all classes, and a sample whose answer there is certain leaves with it: negatives and positives
alike. The exit is a `ClassGate` with a class loss of weight 1. That is the cross-entropy of all classes, so `Objective`
trains it as BranchyNet does; with the same head as the gate it is compared with, only the decision differs.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from penstock.evaluation.outputs import Forward
from penstock.gating.layers import LayerConfig
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective

EXIT = LayerConfig("gate", class_loss_weight=1.0)
EQUAL_WEIGHTS = Objective(alpha=0.5)
"""The loss of the exit and that of the final output weigh the same."""


def relative_entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the softmax relative to its maximum: (batch, classes) -> (batch,), from 0 to 1.

    >>> relative_entropy(torch.tensor([[0.0, 0.0], [20.0, 0.0]])).round(decimals=6).tolist()
    [1.0, 0.0]
    """
    return torch.special.entr(logits.double().softmax(1)).sum(1) / log(logits.shape[1])


def exit_outputs(net: GatedNetwork) -> Forward:
    """Return the function that computes final logits, and the entropy and the label at the exit."""

    def forward(x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        out = net(x)
        (logits,) = out.gate_outputs
        assert logits is not None
        return out.logits, [relative_entropy(logits), logits.argmax(1)]

    return forward
