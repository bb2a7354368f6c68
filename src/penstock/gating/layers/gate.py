"""The gate: a small binary head that scores whether a sample needs the next stage (the paper's section 2.1).

The head must survive the paper's learning rate of 0.01. A narrow ReLU layer on flattened features did not: its units
died and it stopped everything. Here the narrow layer is normalised before its activation, so no step, however large,
can push all units to one side (docs/decisions/0004-gate-head.md).
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from math import inf, prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from penstock.errors import LabelError, ObjectiveError
from penstock.gating.layers.config import Granularity
from penstock.gating.layers.mask_layout import MASK_LAYOUTS


class Gate(nn.Module):
    """Score each sample: is there anything here worth waking the next island for?

    The gate reads one value per mask dimension, so its weights shrink with the mask: given ``kept``, it reads packed
    features and computes the same as from the masked ones.

    Shapes:
        x: (batch, *feature) -> logits: (batch,); a sample passes when its logit reaches ``threshold``.

    Attributes:
        positives: Ω, the labels that this gate lets pass; None for all but ``background``.
        threshold: the logit at which a sample passes; 0 (a probability of ½) until calibrated.
    """

    threshold: Tensor

    def __init__(
        self,
        feature: tuple[int, ...],
        granularity: Granularity = "element",
        *,
        width: int = 16,
        positives: Collection[int] | None = None,
    ):
        super().__init__()
        if positives is not None and not len(positives):
            raise LabelError("positives must name at least one label, or be None for all but background, got none.")
        self.granularity, self.width = granularity, width
        self.positives = None if positives is None else tuple(sorted({int(label) for label in positives}))
        self.squeeze = nn.Linear(prod(MASK_LAYOUTS[granularity].mask_shape(feature)), width)
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, 1)
        self.register_buffer("threshold", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return self.score(self.hidden(x, kept)).squeeze(1).float()

    def hidden(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return the hidden units of features, or of packed features: (batch, width)."""
        weight = self.squeeze.weight if kept is None else self.squeeze.weight.index_select(1, kept)
        pooled = MASK_LAYOUTS[self.granularity].pool(x)  # (batch, units)
        if not torch.is_autocast_enabled(x.device.type):  # autocast casts by itself
            pooled = pooled.to(weight.dtype)
        return F.silu(self.norm(F.linear(pooled, weight, self.squeeze.bias)))

    def gate_logit(self, out: Tensor) -> Tensor:
        """Return the logit that is compared with the threshold, (batch,), given the output of `forward`."""
        return out

    def omega(self, labels: Tensor, background: int) -> Tensor:
        """Return Ω(y): which labels are of interest to this gate."""
        if self.positives is None:
            return labels != background
        return torch.isin(labels, torch.tensor(self.positives, device=labels.device))

    def shrink(self, kept: Tensor) -> Gate:
        """Return the gate for packed features, with the parameters of the kept dimensions only."""
        small = nn.utils.skip_init(nn.Linear, len(kept), self.width).to(self.squeeze.weight)
        small.load_state_dict({"weight": self.squeeze.weight.detach().index_select(1, kept), "bias": self.squeeze.bias})
        return copy.deepcopy(self, {id(self.squeeze): small}).train(self.training)  # the copy has `small` as squeeze

    def macs(self, kept: int) -> int:
        """Return the multiply-accumulates of one decision when ``kept`` dimensions are read."""
        return (kept + 1) * self.width

    def extra_repr(self) -> str:
        positives = "all but background" if self.positives is None else self.positives
        return f"positives={positives}, threshold={self.threshold.item():.4g}"


class ClassGate(Gate):
    """A gate that also learns to predict the class; in use it still decides only whether the sample is positive.

    The features that the gate reads are also used by the rest of the network. A binary loss alone would train them for
    that one question; a class loss trains them for what the network needs (docs/decisions/0017-class-gates.md).

    Shapes:
        x: (batch, *feature) -> class logits: (batch, classes); `gate_logit` turns them into log-odds of Ω, (batch,).

    Attributes:
        class_loss_weight: the weight of its class loss in training, relative to its binary loss.
    """

    inside: Tensor
    outside: Tensor

    def __init__(
        self,
        feature: tuple[int, ...],
        granularity: Granularity = "element",
        *,
        classes: int,
        background: int = 0,
        class_loss_weight: float = 1.0,
        width: int = 16,
        positives: Collection[int] | None = None,
    ):
        super().__init__(feature, granularity, width=width, positives=positives)
        if not 0 < class_loss_weight < inf:
            raise ObjectiveError(f"class_loss_weight must be finite and above 0, got {class_loss_weight:g}.")
        self.background, self.class_loss_weight = background, class_loss_weight
        self.score = nn.Linear(width, classes)
        positive = self.omega(torch.arange(classes), background)
        if positive.all() or not positive.any():
            raise LabelError(
                f"a gate needs both positive and negative classes among 0 … {classes - 1}, got positives = "
                f"{self.positives} and background = {background}."
            )
        self.register_buffer("inside", positive.nonzero().flatten(), persistent=False)
        self.register_buffer("outside", (~positive).nonzero().flatten(), persistent=False)

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return self.score(self.hidden(x, kept)).float()

    def gate_logit(self, out: Tensor) -> Tensor:
        inside, outside = out.index_select(1, self.inside), out.index_select(1, self.outside)
        return inside.logsumexp(1) - outside.logsumexp(1)

    def macs(self, kept: int) -> int:
        return (kept + self.score.out_features) * self.width

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, class_loss_weight={self.class_loss_weight:g}"
