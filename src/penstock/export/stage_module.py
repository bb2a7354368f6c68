"""Stages as they are deployed: what crosses a link goes in packed and comes out packed."""

from __future__ import annotations

import math
from math import prod

from torch import Tensor, nn

from penstock.errors import ExportError
from penstock.gating.layers.mask_layout import packed_positions
from penstock.gating.network import GatedNetwork


class DeployedStage(nn.Module):
    """A stage with what stands around it: the mask before it is undone, the mask behind it packs, the gate scores.

    Shapes:
        input or packed (batch, kept) -> packed (batch, kept), gate (batch,); the last one: logits (batch, classes).
    """

    kept: Tensor | None
    places: Tensor | None

    def __init__(self, net: GatedNetwork, number: int):
        super().__init__()
        self.stage = net.stages[number]
        self.before = net.layers[number - 1] if number else None
        self.behind = net.layers[number] if number < len(net.layers) else None
        self.gate = None
        if self.behind is not None and is_gated(net, number):
            gate = self.behind.gate
            assert gate is not None
            self.gate = gate if self.behind.compression is None else gate.shrink(self.behind.read)
        thinning, thinned = (None if layer is None else layer.compression for layer in (self.behind, self.before))
        # constants of the graph, not computed from φ in it
        self.register_buffer("kept", None if thinning is None else thinning.kept)
        self.register_buffer("places", None if thinned is None else packed_positions(thinned.kept, thinned.phi.numel()))
        self.packed = () if thinned is None else thinned.layout.packed_shape(thinned.feature, len(thinned.kept))

    def forward(self, values: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.stage(self.unpack(values))
        if self.behind is None:
            return x.float()  # type: ignore[no-any-return]
        packed = x if self.kept is None else self.behind.layout.pack(x, self.kept)
        if self.gate is None:
            return packed.flatten(1)  # type: ignore[no-any-return]
        return packed.flatten(1), self.gate.gate_logit(self.gate(packed))

    def unpack(self, values: Tensor) -> Tensor:
        """Put what crossed the link back to its places; the input of the first stage is taken as it is."""
        if self.before is None:
            return values
        layout, feature = self.before.layout, self.before.feature
        if self.places is None:
            return values.unflatten(1, feature)
        return layout.unpack(values.view(-1, *self.packed), self.places, feature)


def is_gated(net: GatedNetwork, number: int) -> bool:
    """Say whether the gate behind a stage stops anything: one that was opened for good is left out."""
    threshold = net.thresholds[number]
    return threshold is not None and threshold > -math.inf


def check(net: GatedNetwork) -> None:
    """Refuse what cannot be deployed.

    Raises:
        ExportError: when a mask keeps nothing, or a gate lets nothing pass.
    """
    for number, layer in enumerate(net.layers, start=1):
        if layer.compression is not None and not len(layer.compression.kept):
            raise ExportError(
                f"the mask behind stage {number} keeps nothing of {prod(layer.feature)} values, so that nothing would "
                "cross the link: train with a lower beta."
            )
        if net.thresholds[number - 1] == math.inf:
            raise ExportError(
                f"the gate behind stage {number} has a threshold of infinity and lets nothing pass: calibrate it."
            )
