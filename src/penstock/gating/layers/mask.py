"""How the weights φ of a mask become 0s and 1s (the paper's equations 5 and 6).

The mask's gradient, x · ∂loss/∂y, is passed straight through to φ, also of dropped dimensions, so they can come back.

Drawn masks follow the stochastic binarisation of binarised networks (Courbariaux et al., arXiv:1602.02830), which
inspired the paper's layer: the network learns not to rely on any single dimension (docs/decisions/0012-drawn-masks.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from penstock.gating.layers.config import MaskKind


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
    return _StraightThrough.apply(phi)


def drawn_mask(phi: Tensor, samples: int) -> Tensor:
    """Return one random mask per sample, (samples, *phi.shape), with a straight-through gradient.

    Dimensions at or below ½ are never drawn: the network would come to depend on values that deployment does not send.
    """
    mask = binary_mask(phi)
    kept = mask.detach()
    drawn = torch.rand(samples, *phi.shape, device=phi.device) < clip(phi.detach())
    return kept * drawn + (mask - kept)


TRAINING_MASKS: dict[MaskKind, Callable[[Tensor, int], Tensor]] = {
    "thresholded": lambda phi, samples: binary_mask(phi),
    "drawn": drawn_mask,
}
"""The mask of a training step, given φ and the batch size; it broadcasts against (samples, *feature)."""


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, phi: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        ctx.save_for_backward(phi)
        return (clip(phi) > 0.5).to(phi.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        (phi,) = ctx.saved_tensors
        # Outside [0, 1] φ may only move back: a step further out changes no mask and delays the return.
        outward = ((phi <= 0) & (grad > 0)) | ((phi >= 1) & (grad < 0))
        return grad.masked_fill(outward, 0)
