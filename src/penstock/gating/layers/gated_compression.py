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
from penstock.gating.layers.head import build_head, gate_granularity, resolved
from penstock.gating.layers.mask_layout import MASK_LAYOUTS, MaskLayout
from penstock.gating.layers.quantizer import Quantizer
from penstock.gating.layers.transform import Transform

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
        network_macs: the multiply-accumulates of the network, by which the gate's own are limited; None: no limit.

    Shapes:
        x: (batch, *feature) -> (features: (batch, *feature), logits: (batch,), of a `ClassGate` (batch, classes), or
            None without a gate).

    >>> layer = GatedCompression((16, 14, 14))
    >>> layer.density, layer.transmitted_values, layer.gate_macs
    (1.0, 3136, 338752)
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
        network_macs: int | None = None,
    ):
        super().__init__()
        self.feature = tuple(feature)
        self.config = config = resolved(config, self.feature, classes, network_macs)
        self.quantizer: Quantizer | None = None
        if config.sent_bits < 32:
            self.quantizer = Quantizer(self.feature, config.sent_bits, axis=self.layout.channels)
        self.compression = None
        if config.has_compression:
            keep = config.kept_dimensions(self.feature)
            transform = Transform(self.feature) if config.transform == "cosine" else None
            self.compression = Compression(self.feature, config.granularity, config.mask, keep, transform)
        self.gate = self._build_gate(positives, classes, background) if config.has_gate else None

    def _build_gate(self, positives: Collection[int] | None, classes: int | None, background: int) -> Gate:
        build: Callable[..., Gate] = Gate
        weight = self.config.class_loss_weight
        if weight:
            if classes is None:
                raise LabelError("class_loss_weight needs the number of classes: pass classes.")
            build = partial(ClassGate, classes=classes, background=background, class_loss_weight=weight)
        return build(build_head(self.feature, self.config), positives=positives)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        coded = x if self.compression is None else self.compression.encode(x)
        gate_out = None if self.gate is None else self.gate(x if self.gate.reads_unmasked else coded)
        return self._received(coded), gate_out

    def send(self, x: Tensor) -> Tensor:
        """Return the features as the next stage gets them: without what is dropped, and quantized."""
        return self._received(x if self.compression is None else self.compression.encode(x))

    def _received(self, coded: Tensor) -> Tensor:
        sent = coded if self.quantizer is None else self.quantizer(coded)
        return sent if self.compression is None else self.compression.decode(sent)

    def change_coordinates(self) -> None:
        """Fit the mask's transform, if it has one and features were seen; 8 and 4 bits then find their range again."""
        changed = self.compression is not None and self.compression.change_coordinates()
        if changed and self.quantizer is not None:
            self.quantizer.ready.fill_(False)

    def score(self, x: Tensor) -> Tensor:
        """Return the gate's output for unmasked features; a linear head reads only what the mask keeps."""
        assert self.gate is not None
        if self.compression is None or self.gate.reads_unmasked:
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
        mask = self.compression is None or self.layout.any_length
        gate = self.gate is None or self.gate.reads_unmasked or MASK_LAYOUTS[self._gate_granularity].any_length
        return mask and gate

    @property
    def density(self) -> float:
        """The share of the features that is sent on."""
        return 1.0 if self.compression is None else self.compression.density

    @property
    def transmitted_values(self) -> int:
        """The number of values sent on for a sample that passes."""
        return round(self.density * prod(self.feature))

    @property
    def transmitted_bytes(self) -> int:
        """The bytes of these values."""
        return -(-self.transmitted_values * self.config.sent_bits // 8)

    @property
    def gate_macs(self) -> int:
        """The multiply-accumulates of one gate decision; 0 without a gate."""
        return 0 if self.gate is None else self.gate.macs(round(self.density * self._gate_inputs))

    @property
    def transform_macs(self) -> int:
        """The multiply-accumulates of changing coordinates before the cut, and again of changing back after it."""
        transform = None if self.compression is None else self.compression.transform
        return 0 if transform is None else transform.macs()

    @property
    def _gate_granularity(self) -> Granularity:
        return gate_granularity(self.config)

    @property
    def _gate_inputs(self) -> int:
        """The values that the gate reads when nothing is dropped."""
        return prod(MASK_LAYOUTS[self._gate_granularity].mask_shape(self.feature))
