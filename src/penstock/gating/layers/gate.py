"""The gate: a small binary head that scores whether a sample needs the next stage (the paper's section 2.1)."""

from __future__ import annotations

import copy
from collections.abc import Collection
from math import inf

import torch
from torch import Tensor, nn

from penstock.errors import LabelError, ObjectiveError
from penstock.gating.layers.head import Head, LinearHead


class Gate(nn.Module):
    """Score each sample: is there anything here worth waking the next island for?

    Shapes:
        x: (batch, *feature) -> logits: (batch,); a sample passes when its logit reaches ``threshold``.

    Attributes:
        head: from features to the hidden units that are scored.
        positives: Ω, the labels that this gate lets pass; None for all but ``background``.
        threshold: the logit at which a sample passes; 0 (a probability of ½) until calibrated.
    """

    threshold: Tensor

    def __init__(self, head: Head, *, positives: Collection[int] | None = None):
        super().__init__()
        if positives is not None and not len(positives):
            raise LabelError("positives must name at least one label, or be None for all but background, got none.")
        self.positives = None if positives is None else tuple(sorted({int(label) for label in positives}))
        self.head = head
        self.score = nn.Linear(head.width, 1)
        self.register_buffer("threshold", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        return self.score(self.hidden(x, kept)).squeeze(1).float()

    def hidden(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        """Return the hidden units of features, or of packed features: (batch, width)."""
        return self.head(x) if kept is None else self.head(x, kept)  # type: ignore[no-any-return]

    @property
    def reads_unmasked(self) -> bool:
        """Whether it reads the features before the mask."""
        return self.head.reads_unmasked

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
        assert isinstance(self.head, LinearHead)
        return copy.deepcopy(self, {id(self.head): self.head.shrink(kept)}).train(self.training)

    def macs(self, kept: int) -> int:
        """Return the multiply-accumulates of one decision when ``kept`` dimensions are read."""
        return self.head.macs(kept) + self.score.out_features * self.head.width

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
        head: Head,
        *,
        classes: int,
        background: int = 0,
        class_loss_weight: float = 1.0,
        positives: Collection[int] | None = None,
    ):
        super().__init__(head, positives=positives)
        if not 0 < class_loss_weight < inf:
            raise ObjectiveError(f"class_loss_weight must be finite and above 0, got {class_loss_weight:g}.")
        self.background, self.class_loss_weight = background, class_loss_weight
        self.score = nn.Linear(head.width, classes)
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
        return _log_sum(out, self.inside) - _log_sum(out, self.outside)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, class_loss_weight={self.class_loss_weight:g}"


def _log_sum(out: Tensor, classes: Tensor) -> Tensor:
    """Return the logarithm of the summed odds of some classes: (batch, all) -> (batch,)."""
    chosen = out.index_select(1, classes)
    return chosen.squeeze(1) if len(classes) == 1 else chosen.logsumexp(1)
