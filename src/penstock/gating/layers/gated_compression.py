"""The gated compression layer: both halves in one (the paper's section 2.3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor, nn

from penstock.errors import LabelError
from penstock.gating.layers.compression import Compression, Granularity, PerElement
from penstock.gating.layers.gate import ClassGate, Gate
from penstock.gating.layers.mask import Binarisation, Thresholded


@dataclass(frozen=True)
class Both:
    """A gate behind a compression: the paper's GC layer.

    Attributes:
        over: what a dimension of the mask is.
        width: the gate's hidden units.
        binarised: how the mask's weights become 0s and 1s while training.
        reads_all: the gate reads every value that flows on, rather than one for each dimension of the mask: under a
            mask of channels, all places and not their mean. Features must then keep their size.
        class_loss_weight: 0 for the paper's gate; above it, the weight with which the gate also learns which class it sees
            (`ClassGate`). Where classes are alike, the network behind it can be the better for it.
    """

    over: Granularity = PerElement()
    width: int = 16
    binarised: Binarisation = Thresholded()
    reads_all: bool = False
    class_loss_weight: float = 0.0


@dataclass(frozen=True)
class GateOnly:
    """A gate that reads all features, and lets all of them flow on; its attributes are those of `Both`."""

    over: Granularity = PerElement()
    width: int = 16
    class_loss_weight: float = 0.0


@dataclass(frozen=True)
class CompressionOnly:
    """A compression that every sample passes."""

    over: Granularity = PerElement()
    binarised: Binarisation = Thresholded()


Halves: TypeAlias = Both | GateOnly | CompressionOnly
"""Which halves a layer has."""


class GatedCompression(nn.Module):
    """Thin the features, and score from what is left whether the sample may go on.

    Shapes:
        x: (batch, *feature) -> (features: (batch, *feature), logits: (batch,), of a `ClassGate` (batch, classes), or
            None without a gate).

    >>> layer = GatedCompression((16, 14, 14))
    >>> layer.density, layer.transmitted_values, layer.gate_macs
    (1.0, 3136, 50192)
    >>> GatedCompression((16, 14, 14), GateOnly()).compression is None
    True
    """

    def __init__(
        self,
        feature: tuple[int, ...],
        halves: Halves = Both(),
        *,
        positives: Collection[int] | None = None,
        classes: int | None = None,
        background: int = 0,
    ):
        super().__init__()
        self.feature = tuple(feature)
        self.halves = halves
        over = halves.over
        self.compression = None if isinstance(halves, GateOnly) else Compression(self.feature, over, halves.binarised)
        self.gate = None
        if not isinstance(halves, CompressionOnly):
            self.gate = self._gate(halves, positives, classes, background)

    def _gate(
        self, halves: Both | GateOnly, positives: Collection[int] | None, classes: int | None, background: int
    ) -> Gate:
        read = PerElement() if self._reads_all else halves.over
        if not halves.class_loss_weight:
            return Gate(self.feature, read, width=halves.width, positives=positives)
        if classes is None:
            raise LabelError(
                "a gate that learns classes (class_loss_weight) must know how many there are: give classes."
            )
        return ClassGate(
            self.feature,
            read,
            classes=classes,
            background=background,
            class_loss_weight=halves.class_loss_weight,
            width=halves.width,
            positives=positives,
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        thinned = self.apply_mask(x)
        return thinned, None if self.gate is None else self.gate(thinned)

    def apply_mask(self, x: Tensor) -> Tensor:
        """Return what flows on of the features."""
        return x if self.compression is None else self.compression(x)

    def score(self, x: Tensor) -> Tensor:
        """Return what the gate says of features not yet thinned, reading only what the mask keeps."""
        assert self.gate is not None
        if self.compression is None:
            return self.gate(x)  # type: ignore[no-any-return]
        return self.gate(self.compression.pack(x), self.read)  # type: ignore[no-any-return]

    @property
    def read(self) -> Tensor:
        """The columns of the gate's first matrix that what flows on has, ascending: what `Gate.shrink` takes."""
        assert self.gate is not None
        if self.compression is None:
            return torch.arange(self._units)
        if not self._reads_all:
            return self.compression.kept
        return self.compression.mask.detach().expand(self.feature).flatten().nonzero().flatten()

    @property
    def any_length(self) -> bool:
        """Whether axes that the mask does not distinguish may be longer or shorter than in the example."""
        return self.halves.over.any_length and not self._reads_all

    @property
    def _reads_all(self) -> bool:
        return isinstance(self.halves, Both) and self.halves.reads_all

    @property
    def _units(self) -> int:
        """The values that a gate reads of features of which nothing is dropped."""
        return prod(self.feature if self._reads_all else self.halves.over.mask_shape(self.feature))

    @property
    def density(self) -> float:
        """The share of the features that flows on."""
        return 1.0 if self.compression is None else self.compression.density

    @property
    def transmitted_values(self) -> int:
        """How many numbers of a passing sample flow on."""
        return round(self.density * prod(self.feature))

    @property
    def gate_macs(self) -> int:
        """The multiply-accumulates of one decision; 0 without a gate."""
        if self.gate is None:
            return 0
        return self.gate.macs(round(self.density * self._units))
