"""Stages as they are deployed: values that cross a link are packed."""

from __future__ import annotations

import math
from math import prod

from torch import Tensor, nn

from penstock.errors import ExportError
from penstock.gating.layers.mask_layout import packed_positions
from penstock.gating.network import GatedNetwork


class DeployedStage(nn.Module):
    """A stage with its surroundings: unpack the input, run the stage, pack the values that are kept, run the gate.

    Shapes:
        input or packed (batch, kept) -> packed (batch, kept), gate (batch,); the last one: logits (batch, classes).
    """

    kept: Tensor | None
    places: Tensor | None

    def __init__(self, net: GatedNetwork, number: int):
        super().__init__()
        self.stage = net.stages[number]
        self.previous_layer = net.layers[number - 1] if number else None
        self.next_layer = net.layers[number] if number < len(net.layers) else None
        self.gate = None
        if self.next_layer is not None and is_gated(net, number):
            gate = self.next_layer.gate
            assert gate is not None
            self.reads_unmasked = self.next_layer.compression is None or gate.reads_unmasked
            self.gate = gate if self.reads_unmasked else gate.shrink(self.next_layer.read)
        packing, unpacking = (
            None if layer is None else layer.compression for layer in (self.next_layer, self.previous_layer)
        )
        # buffers, so that they are constants of the graph and not computed from φ in it
        self.register_buffer("kept", None if packing is None else packing.kept)
        self.register_buffer(
            "places", None if unpacking is None else packed_positions(unpacking.kept, unpacking.phi.numel())
        )
        self.packing, self.unpacking = (
            None if layer is None or layer.transform is None or not layer.transform.fitted else layer.transform
            for layer in (packing, unpacking)
        )
        self.packed = () if unpacking is None else unpacking.layout.packed_shape(unpacking.feature, len(unpacking.kept))

    def forward(self, values: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.stage(self.unpack(values))
        if self.next_layer is None:
            return x.float()  # type: ignore[no-any-return]
        coded = x if self.packing is None else self.packing.coefficients(x)
        packed = coded if self.kept is None else self.next_layer.layout.pack(coded, self.kept)
        if self.gate is None:
            return packed.flatten(1)  # type: ignore[no-any-return]
        return packed.flatten(1), self.gate.gate_logit(self.gate(x if self.reads_unmasked else packed))

    def unpack(self, values: Tensor) -> Tensor:
        """Put received values back into their places; the first stage's input is not packed."""
        if self.previous_layer is None:
            return values
        layout, feature = self.previous_layer.layout, self.previous_layer.feature
        if self.places is None:
            return values.unflatten(1, feature)
        coded = layout.unpack(values.view(-1, *self.packed), self.places, feature)
        return coded if self.unpacking is None else self.unpacking.features(coded)


def is_gated(net: GatedNetwork, number: int) -> bool:
    """Return whether a stage ends with a gate that can stop samples; a threshold of -inf is an open gate."""
    threshold = net.thresholds[number]
    return threshold is not None and threshold > -math.inf


def check(net: GatedNetwork) -> None:
    """Refuse a network with a mask that keeps nothing or a gate that lets nothing pass."""
    for number, layer in enumerate(net.layers, start=1):
        if layer.compression is not None and not len(layer.compression.kept):
            raise ExportError(
                f"the mask after stage {number} keeps 0 of {prod(layer.feature)} values. Train with a lower beta."
            )
        if layer.quantizer is not None and not layer.quantizer.ready:
            bits = layer.config.sent_bits
            raise ExportError(f"the values after stage {number} have {bits} bits and no range yet: train the network.")
        if net.thresholds[number - 1] == math.inf:
            raise ExportError(
                f"the gate after stage {number} lets nothing pass: its threshold is infinite. Calibrate it."
            )
