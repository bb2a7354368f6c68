"""The compression layer: a learned binary mask that drops dimensions of the features (the paper's equations 2, 5, 6).

    y = x ∘ Γ(σ(φ)),    σ clips to [0, 1]

mask.py binarises φ; mask_layout.py maps mask dimensions to features.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from penstock.errors import ObjectiveError, ShapeError
from penstock.gating.layers.config import Granularity, MaskKind
from penstock.gating.layers.mask import TRAINING_MASKS, binary_mask, clip
from penstock.gating.layers.mask_layout import MASK_LAYOUTS, MaskLayout, packed_positions
from penstock.gating.layers.transform import Transform

MEMORY = 0.98
"""Of the running mean of a dimension's importance: about 50 batches."""


def transmission_cost(phi: Tensor, p: float = 2.0) -> Tensor:
    """Return the L_p cost of what is transmitted: the mean of σ(φ)^p / p.

    A mean rather than a sum, so that one β means the same for 64 channels as for 50,000 elements; divided by p, so that
    the gradient of a fully open dimension is the same for every p.

    >>> transmission_cost(torch.tensor([0.0, 0.5, 1.0, 1.5])).item()
    0.28125
    """
    if not p > 0:
        raise ObjectiveError(f"p, the exponent of the transmission cost, must be above 0, got {p}.")
    clipped = clip(phi) if p >= 1 else phi.clamp(1e-6, 1)  # below p = 1 the slope at 0 is infinite
    return clipped.pow(p).mean() / p


class Compression(nn.Module):
    """Drop the dimensions that the rest of the network does not need.

    A new mask keeps everything: φ starts at random values in (½, 1], so the network first computes what it computed
    before, and dimensions are dropped one by one rather than all in the same step.

    Args:
        feature: the shape of one sample's features, without the batch.
        granularity: what one mask dimension covers, as in `LayerConfig`.
        mask: how φ becomes binary during training, as in `LayerConfig`.
        keep: how many dimensions are kept in the end: those whose values matter most to the loss, by a running mean of
            (value · gradient)², the Fisher information; `thin` drops the others. None to learn φ by its gradient.
        transform: the coordinates in which values are kept or dropped; None for the features' own.

    Shapes:
        x: (batch, *feature) -> (batch, *feature), zero where dropped.

    >>> layer = Compression((4, 8, 8), "channel")
    >>> layer.density, layer.kept.tolist()
    (1.0, [0, 1, 2, 3])
    """

    importance: Tensor | None

    def __init__(
        self,
        feature: tuple[int, ...],
        granularity: Granularity = "element",
        mask: MaskKind = "thresholded",
        keep: int | None = None,
        transform: Transform | None = None,
    ):
        super().__init__()
        self.feature = tuple(feature)
        self.granularity = granularity
        self.mask_kind = mask
        self.phi = nn.Parameter(1 - 0.5 * torch.rand(self.layout.mask_shape(self.feature)), requires_grad=keep is None)
        self.keep, self.transform = keep, transform
        self.register_buffer("importance", None if keep is None else torch.zeros_like(self.phi))

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    def encode(self, x: Tensor) -> Tensor:
        """Return the features, or their coefficients, with zeros where dropped."""
        x = self._coordinates(x)
        mask = TRAINING_MASKS[self.mask_kind](self.phi, len(x)) if self.training else self.mask
        masked = x * mask.to(x.dtype)
        if self.importance is not None and self.training and torch.is_grad_enabled():
            if not masked.requires_grad:  # what comes before is frozen
                masked.requires_grad_()
            masked.register_hook(partial(self._observe, x.detach()))
        return masked

    def decode(self, coded: Tensor) -> Tensor:
        """Return the features of what `encode` gave."""
        return coded if self.transform is None else self.transform.inverse(coded)

    def _coordinates(self, x: Tensor) -> Tensor:
        """Return the values that the mask covers."""
        self._check(x)
        if self.transform is None:
            return x
        if self.training and torch.is_grad_enabled() and not self.transform.fitted:
            self.transform.observe(x)
        return self.transform(x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _observe(self, x: Tensor, grad: Tensor) -> None:
        """Add a batch to the running mean of what each dimension matters to the loss, also of dropped ones."""
        assert self.importance is not None
        matters = (x.float() * grad.float()).square().mean(0)
        axes = [i for i, size in enumerate(self.phi.shape) if size == 1]
        self.importance.lerp_(matters.sum(axes, keepdim=True) if axes else matters, 1 - MEMORY)

    @torch.no_grad()
    def keep_only(self, count: int) -> None:
        """Keep the ``count`` most important dimensions."""
        assert self.importance is not None
        best = self.importance.flatten().topk(count).indices
        self.phi.zero_().flatten()[best] = 1.0

    @torch.no_grad()
    def change_coordinates(self) -> bool:
        """Fit the transform to the features seen so far, if there is one and it is not yet; return whether it was."""
        if self.transform is None or self.transform.fitted or not self.transform.seen:
            return False
        self.transform.fit()
        assert self.importance is not None
        self.importance.zero_()  # of values that are no longer what is chosen from
        return True

    def pack(self, x: Tensor) -> Tensor:
        """Return only the kept dimensions of ``x``."""
        return self.layout.pack(self._coordinates(x), self.kept)

    def unpack(self, packed: Tensor) -> Tensor:
        """Undo `pack`: ``unpack(pack(x))`` equals ``forward(x)``."""
        return self.decode(self.layout.unpack(packed, packed_positions(self.kept, self.phi.numel()), self.feature))

    @property
    def layout(self) -> MaskLayout:
        """How the mask lies over the features."""
        return MASK_LAYOUTS[self.granularity]

    @property
    def mask(self) -> Tensor:
        """Γ(σ(φ)): 1 where a dimension is kept."""
        return binary_mask(self.phi)

    @property
    def kept(self) -> Tensor:
        """The indices of the kept dimensions, ascending."""
        return (self.phi.detach().flatten() > 0.5).nonzero().flatten()

    @property
    def density(self) -> float:
        """The share of dimensions that are kept."""
        return (self.phi.detach() > 0.5).double().mean().item()

    @property
    def dropout_rate(self) -> float:
        """The share of dimensions that are dropped: the paper's P_dr."""
        return 1 - self.density

    def extra_repr(self) -> str:
        return f"{self.feature}, granularity={self.granularity!r}, kept={len(self.kept)}/{self.phi.numel()}"

    def _check(self, x: Tensor) -> None:
        if x.ndim != len(self.feature) + 1 or self.layout.mask_shape(tuple(x.shape[1:])) != tuple(self.phi.shape):
            raise ShapeError(
                f"expected features (batch, {', '.join(map(str, self.feature))}) for a mask with granularity "
                f"{self.granularity!r}, got {tuple(x.shape)}. Gate the network with an example of the size you run on."
            )
