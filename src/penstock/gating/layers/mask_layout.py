"""How a mask lies over features: its shape, and how features are pooled, packed and unpacked along it.

``feature`` is always the shape of one sample's features, without the batch: (C, H, W), (C, T), (T, D) or (D,).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from penstock.gating.layers.config import Granularity


class MaskLayout:
    """One mask dimension per element of the features: the paper's choice, and the finest."""

    any_length = False
    """Whether axes that the mask does not cover may differ in length from the example."""
    channels = 0
    """The axis of the features, without the batch, along which values differ in range."""

    def mask_shape(self, feature: tuple[int, ...]) -> tuple[int, ...]:
        """Return the mask's shape, which broadcasts against ``feature``."""
        return tuple(feature)

    def packed_shape(self, feature: tuple[int, ...], kept: int) -> tuple[int, ...]:
        """Return the shape of one sample's packed features when ``kept`` mask dimensions are kept."""
        return (kept,)

    def pool(self, x: Tensor) -> Tensor:
        """Return one value per mask dimension: (batch, *feature) -> (batch, units)."""
        return x.flatten(1)

    def pack(self, x: Tensor, kept: Tensor) -> Tensor:
        """Return only the kept dimensions of ``x``: what crosses a link."""
        return x.flatten(1).index_select(1, kept)

    def unpack(self, packed: Tensor, positions: Tensor, feature: tuple[int, ...]) -> Tensor:
        """Put packed values back to their positions (`packed_positions`), with zeros in between."""
        return F.pad(packed, (0, 1)).index_select(1, positions).unflatten(1, feature)


class _AxisLayout(MaskLayout):
    """One mask dimension per index of one axis, counted with the batch; a negative axis counts from the last."""

    any_length = True

    def __init__(self, axis: int):
        self.axis, self.channels = axis, min(axis, 0)

    def mask_shape(self, feature: tuple[int, ...]) -> tuple[int, ...]:
        axis = self.axis % (len(feature) + 1) - 1
        return tuple(size if i == axis else 1 for i, size in enumerate(feature))

    def packed_shape(self, feature: tuple[int, ...], kept: int) -> tuple[int, ...]:
        axis = self.axis % (len(feature) + 1) - 1
        return tuple(kept if i == axis else size for i, size in enumerate(feature))

    def pool(self, x: Tensor) -> Tensor:
        return x if x.ndim == 2 else x.movedim(self.axis % x.ndim, 1).flatten(2).mean(2)

    def pack(self, x: Tensor, kept: Tensor) -> Tensor:
        return x.index_select(self.axis % x.ndim, kept)

    def unpack(self, packed: Tensor, positions: Tensor, feature: tuple[int, ...]) -> Tensor:
        axis = self.axis % packed.ndim
        later = packed.ndim - 1 - axis  # `pad` counts axes from the last
        return F.pad(packed, (0, 0) * later + (0, 1)).index_select(axis, positions)


MASK_LAYOUTS: dict[Granularity, MaskLayout] = {
    "element": MaskLayout(),
    "channel": _AxisLayout(1),
    "feature": _AxisLayout(-1),
}


def packed_positions(kept: Tensor, size: int) -> Tensor:
    """Return the position of each of ``size`` dimensions among the kept ones; dropped ones get the one past the end.

    >>> packed_positions(torch.tensor([1, 3]), 4).tolist()
    [2, 0, 2, 1]
    """
    positions = kept.new_full((size,), len(kept))
    positions[kept] = torch.arange(len(kept), device=kept.device)
    return positions
