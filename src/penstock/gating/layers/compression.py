"""The compression layer: a learned binary mask that thins what flows on (the paper's equations 2, 5 and 6).

    y = x ∘ Γ(σ(φ)),    σ clips to [0, 1]

How Γ makes a mask of 0s and 1s is said in binarisation.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from penstock.errors import ObjectiveError, ShapeError
from penstock.gating.layers.mask import Binarisation, Thresholded, binary_mask, clip


class Granularity(ABC):
    """What one dimension of a mask stands for: `PerElement`, `PerChannel` or `PerFeature`.

    ``feature`` is always the shape of one sample's features, without the batch: (C, H, W), (C, T), (T, D) or (D,).

    Attributes:
        any_length: axes that the mask does not distinguish may be longer or shorter than when the mask was made.
    """

    any_length: ClassVar[bool]

    @abstractmethod
    def mask_shape(self, feature: tuple[int, ...]) -> tuple[int, ...]:
        """Return the mask's shape, which broadcasts against ``feature``."""

    @abstractmethod
    def packed_shape(self, feature: tuple[int, ...], kept: int) -> tuple[int, ...]:
        """Return the shape of a sample's packed features, given how many dimensions of the mask are kept."""

    @abstractmethod
    def pool(self, x: Tensor) -> Tensor:
        """Return one value for each dimension of the mask: (batch, *feature) -> (batch, units)."""

    @abstractmethod
    def pack(self, x: Tensor, kept: Tensor) -> Tensor:
        """Return only the kept dimensions of ``x``: what crosses a link."""

    @abstractmethod
    def unpack(self, packed: Tensor, places: Tensor, feature: tuple[int, ...]) -> Tensor:
        """Put packed values back where `places` says, with zeros between them."""


@dataclass(frozen=True)
class PerElement(Granularity):
    """One mask dimension for each element of the features: the paper's choice, and the finest."""

    any_length: ClassVar[bool] = False

    def mask_shape(self, feature: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(feature)

    def packed_shape(self, feature: tuple[int, ...], kept: int) -> tuple[int, ...]:
        return (kept,)

    def pool(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def pack(self, x: Tensor, kept: Tensor) -> Tensor:
        return x.flatten(1).index_select(1, kept)

    def unpack(self, packed: Tensor, places: Tensor, feature: tuple[int, ...]) -> Tensor:
        return F.pad(packed, (0, 1)).index_select(1, places).unflatten(1, feature)


class _PerAxis(Granularity):
    """One mask dimension for each index of one axis."""

    any_length: ClassVar[bool] = True

    @abstractmethod
    def _axis(self, rank: int) -> int:
        """Return the axis of features with so many axes, the batch among them."""

    def mask_shape(self, feature: tuple[int, ...]) -> tuple[int, ...]:
        axis = self._axis(len(feature) + 1) - 1
        return tuple(size if i == axis else 1 for i, size in enumerate(feature))

    def packed_shape(self, feature: tuple[int, ...], kept: int) -> tuple[int, ...]:
        axis = self._axis(len(feature) + 1) - 1
        return tuple(kept if i == axis else size for i, size in enumerate(feature))

    def pool(self, x: Tensor) -> Tensor:
        return x if x.ndim == 2 else x.movedim(self._axis(x.ndim), 1).flatten(2).mean(2)

    def pack(self, x: Tensor, kept: Tensor) -> Tensor:
        return x.index_select(self._axis(x.ndim), kept)

    def unpack(self, packed: Tensor, places: Tensor, feature: tuple[int, ...]) -> Tensor:
        axis = self._axis(packed.ndim)
        behind = packed.ndim - 1 - axis  # `pad` counts axes from the last
        return F.pad(packed, (0, 0) * behind + (0, 1)).index_select(axis, places)


@dataclass(frozen=True)
class PerChannel(_PerAxis):
    """One mask dimension a channel: the first axis of (C, H, W) and (C, T)."""

    def _axis(self, rank: int) -> int:
        return 1


@dataclass(frozen=True)
class PerFeature(_PerAxis):
    """One mask dimension a feature: the last axis of (T, D), as in tokens and recurrent networks."""

    def _axis(self, rank: int) -> int:
        return rank - 1


def places(kept: Tensor, size: int) -> Tensor:
    """Return where each of ``size`` dimensions stands among the kept ones; the dropped ones stand behind all.

    >>> places(torch.tensor([1, 3]), 4).tolist()
    [2, 0, 2, 1]
    """
    found = kept.new_full((size,), len(kept))
    found[kept] = torch.arange(len(kept), device=kept.device)
    return found


def transmission_cost(phi: Tensor, p: float = 2.0) -> Tensor:
    """Return the L_p cost of what is transmitted: the mean of σ(φ)^p / p.

    A mean rather than a sum, so that one β means the same for 64 channels as for 50,000 elements; divided by p, so that
    the pull on a dimension that is fully open is the same for every p.

    >>> transmission_cost(torch.tensor([0.0, 0.5, 1.0, 1.5])).item()
    0.28125
    """
    if not p > 0:
        raise ObjectiveError(
            f"p = {p} is not possible: the transmission cost L_p needs p > 0. The paper's choice is p = 2."
        )
    clipped = clip(phi) if p >= 1 else phi.clamp(1e-6, 1)  # below p = 1 the slope at 0 is infinite
    return clipped.pow(p).mean() / p


class Compression(nn.Module):
    """Drop the dimensions that the rest of the network can do without.

    A new mask is full: φ starts at random heights in (½, 1], so the network computes at first what it computed
    before, and dimensions fall one after another rather than all at the same step.

    Args:
        over: what one dimension of the mask stands for.
        binarised: how φ becomes a mask while training; afterwards what is above ½ is kept, whatever this says.

    Shapes:
        x: (batch, *feature) -> (batch, *feature), zero where dropped.

    >>> layer = Compression((4, 8, 8), over=PerChannel())
    >>> layer.density, layer.kept.tolist()
    (1.0, [0, 1, 2, 3])
    """

    def __init__(
        self,
        feature: tuple[int, ...],
        over: Granularity = PerElement(),
        binarised: Binarisation = Thresholded(),
    ):
        super().__init__()
        self.feature = tuple(feature)
        self.over = over
        self.binarised = binarised
        self.phi = nn.Parameter(1 - 0.5 * torch.rand(over.mask_shape(self.feature)))

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        mask = self.binarised.while_training(self.phi, len(x)) if self.training else self.mask
        return x * mask.to(x.dtype)

    def pack(self, x: Tensor) -> Tensor:
        """Return only the kept dimensions of ``x``."""
        self._check(x)
        return self.over.pack(x, self.kept)

    def unpack(self, packed: Tensor) -> Tensor:
        """Undo `pack`: ``unpack(pack(x))`` equals ``forward(x)``."""
        return self.over.unpack(packed, places(self.kept, self.phi.numel()), self.feature)

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
        kept, units = len(self.kept), self.phi.numel()
        return f"{self.feature}, over={self.over}, kept={kept}/{units}"

    def _check(self, x: Tensor) -> None:
        if x.ndim != len(self.feature) + 1 or self.over.mask_shape(tuple(x.shape[1:])) != tuple(self.phi.shape):
            raise ShapeError(
                f"features of shape {tuple(x.shape[1:])} do not fit this mask, which was made for {self.feature} "
                f"{self.over}. Gate the network with an example of the shape that it will see."
            )
