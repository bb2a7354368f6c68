"""How the weights φ of a mask become 0s and 1s (the paper's equations 5 and 6).

    Thresholded()    1 where σ(φ) > ½: the paper's Γ
    Drawn()          of those, each with probability σ(φ), while training: a draw for each sample and dimension

Neither has a gradient of its own, so the gradient of the mask is handed straight through to φ. A dropped dimension
still receives one (the gradient of the mask is x · ∂loss/∂y, whatever the mask is), so it can come back.

A network that is deployed always has the thresholded mask. Drawn ones come from the stochastic binarisation of
binarised networks (Courbariaux et al., arXiv:1602.02830), by which the paper's layer was inspired: a dimension that is
not sure of its place comes and goes, and the network learns to do without any single one
(docs/decisions/0012-drawn-masks.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Binarisation(ABC):
    """How φ becomes a mask while training: `Thresholded` or `Drawn`."""

    @abstractmethod
    def while_training(self, phi: Tensor, samples: int) -> Tensor:
        """Return a mask that broadcasts against (samples, *feature), with a straight-through gradient to ``phi``."""


@dataclass(frozen=True)
class Thresholded(Binarisation):
    """Keep what is above ½: the paper's choice, and the same mask as in deployment."""

    def while_training(self, phi: Tensor, samples: int) -> Tensor:
        return binary_mask(phi)


@dataclass(frozen=True)
class Drawn(Binarisation):
    """Keep, of what is above ½, each dimension of each sample with probability σ(φ).

    What is below ½ is never drawn: the network behind would come to rest on values that deployment does not send.
    """

    def while_training(self, phi: Tensor, samples: int) -> Tensor:
        mask = binary_mask(phi)
        kept = mask.detach()
        has_drawn_masks = torch.rand(samples, *phi.shape, device=phi.device) < clip(phi.detach())
        return kept * has_drawn_masks + (mask - kept)


def clip(phi: Tensor) -> Tensor:
    """Clip to [0, 1]: the paper's σ (equation 5)."""
    return phi.clamp(0, 1)


def binary_mask(phi: Tensor) -> Tensor:
    """Return Γ(σ(φ)), the mask of 0s and 1s, with a straight-through gradient (equation 6).

    >>> phi = torch.tensor([-0.2, 0.5, 0.7], requires_grad=True)
    >>> mask = binary_mask(phi); mask.tolist()
    [0.0, 0.0, 1.0]
    >>> (mask * torch.tensor([-1.0, 2.0, 3.0])).sum().backward(); phi.grad.tolist()
    [-1.0, 2.0, 3.0]
    """
    return _StraightThrough.apply(phi)  # type: ignore[no-any-return]


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, phi: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        ctx.save_for_backward(phi)
        return (clip(phi) > 0.5).to(phi.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        (phi,) = ctx.saved_tensors
        # Outside [0, 1] only the way back is open: a step further out would change nothing but the way home.
        outward = ((phi <= 0) & (grad > 0)) | ((phi >= 1) & (grad < 0))
        return grad.masked_fill(outward, 0)
