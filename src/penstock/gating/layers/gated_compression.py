"""The gated compression layer: a compression mask and then a gate (the paper's section 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from penstock.errors import LabelError
from penstock.gating.layers.compression import Compression
from penstock.gating.layers.config import Granularity, LayerConfig
from penstock.gating.layers.gate import ClassGate, Gate
from penstock.gating.layers.mask_layout import MASK_LAYOUTS, MaskLayout

FLOAT_BYTES = 4
"""Features are sent as float32 unless they are quantized."""


class GatedCompression(nn.Module):
    """Mask the features, and score from what is kept whether the sample passes.

    Args:
        feature: the shape of one sample's features, without the batch.
        config: what the layer consists of.
        positives: Ω, the labels that the gate lets pass; None for all but ``background``.
        classes: the number of classes; required when ``config.class_loss_weight`` is above 0.
        background: the label of negatives.

    Shapes:
        x: (batch, *feature) -> (features: (batch, *feature), logits: (batch,), of a `ClassGate` (batch, classes), or
            None without a gate).

    >>> layer = GatedCompression((16, 14, 14))
    >>> layer.density, layer.transmitted_values, layer.gate_macs
    (1.0, 3136, 50192)
    >>> GatedCompression((16, 14, 14), LayerConfig("gate")).compression is None
    True
    """

    def __init__(
        self,
        feature: tuple[int, ...],
        config: LayerConfig = LayerConfig(),
        *,
        positives: Collection[int] | None = None,
        classes: int | None = None,
        background: int = 0,
    ):
        super().__init__()
        self.feature = tuple(feature)
        self.config = config
        mask = Compression(self.feature, config.granularity, config.mask) if config.has_compression else None
        self.compression = mask
        self.gate = self._build_gate(positives, classes, background) if config.has_gate else None

    def _build_gate(self, positives: Collection[int] | None, classes: int | None, background: int) -> Gate:
        build: Callable[..., Gate] = Gate
        weight = self.config.class_loss_weight
        if weight:
            if classes is None:
                raise LabelError("class_loss_weight needs the number of classes: pass classes.")
            build = partial(ClassGate, classes=classes, background=background, class_loss_weight=weight)
        return build(self.feature, self._gate_granularity, width=self.config.gate_width, positives=positives)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        masked = self.apply_mask(x)
        return masked, None if self.gate is None else self.gate(masked)

    def apply_mask(self, x: Tensor) -> Tensor:
        """Return the features with the dropped dimensions set to zero."""
        return x if self.compression is None else self.compression(x)

    def score(self, x: Tensor) -> Tensor:
        """Return the gate's output for unmasked features, reading only what the mask keeps."""
        assert self.gate is not None
        if self.compression is None:
            return self.gate(x)
        return self.gate(self.compression.pack(x), self.read)

    @property
    def layout(self) -> MaskLayout:
        """How the mask lies over the features."""
        return MASK_LAYOUTS[self.config.granularity]

    @property
    def read(self) -> Tensor:
        """The columns of the gate's first matrix that the kept features use, ascending: the input of `Gate.shrink`."""
        assert self.gate is not None
        if self.compression is None:
            return torch.arange(self._gate_inputs)
        if self.config.gate_input == "kept":
            return self.compression.kept
        return self.compression.mask.detach().expand(self.feature).flatten().nonzero().flatten()

    @property
    def any_length(self) -> bool:
        """Whether axes that the mask does not cover may differ in length from the example."""
        return MASK_LAYOUTS[self._gate_granularity].any_length

    @property
    def density(self) -> float:
        """The share of the features that is sent on."""
        return 1.0 if self.compression is None else self.compression.density

    @property
    def transmitted_values(self) -> int:
        """The number of values sent on for a sample that passes."""
        return round(self.density * prod(self.feature))

    @property
    def gate_macs(self) -> int:
        """The multiply-accumulates of one gate decision; 0 without a gate."""
        return 0 if self.gate is None else self.gate.macs(round(self.density * self._gate_inputs))

    @property
    def _gate_granularity(self) -> Granularity:
        return "element" if self.config.gate_input == "all" else self.config.granularity

    @property
    def _gate_inputs(self) -> int:
        """The values that the gate reads when nothing is dropped."""
        return prod(MASK_LAYOUTS[self._gate_granularity].mask_shape(self.feature))
