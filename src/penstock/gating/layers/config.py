"""Choose what a gated compression layer consists of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import Literal, TypeAlias, get_args

from penstock.errors import LayerError

Parts: TypeAlias = Literal["both", "gate", "compression"]
Granularity: TypeAlias = Literal["element", "channel", "feature"]
MaskKind: TypeAlias = Literal["thresholded", "drawn"]
GateInput: TypeAlias = Literal["kept", "all"]

_CHOICES = {"parts": Parts, "granularity": Granularity, "mask": MaskKind, "gate_input": GateInput}
_UNUSED = {"both": (), "gate": ("mask",), "compression": ("gate_width", "gate_input", "class_loss_weight")}


@dataclass(frozen=True)
class LayerConfig:
    """Configure one gated compression layer.

    Attributes:
        parts: "both", a compression mask and then a gate: the paper's layer; "gate", which stops samples and sends all
            features on; "compression", which every sample passes.
        granularity: what one mask dimension covers. "element": one value of the features, the paper's choice, for
            inputs of a fixed size; "channel": the first axis of (C, H, W) and (C, T); "feature": the last axis of
            (T, D). The last two accept features of any length.
        mask: how the mask becomes binary during training. "thresholded": kept above ½, as in the paper; "drawn": of
            those, each dimension of each sample with probability σ(φ). Evaluation always thresholds.
        gate_width: the hidden units of the gate.
        gate_input: what the gate reads. "kept": one value per kept mask dimension (the mean over a channel or
            feature); "all": every value of the kept dimensions, for inputs of a fixed size.
        class_loss_weight: 0 for the paper's gate; above 0, the gate also learns to predict the class, with this weight
            in its loss (`ClassGate`). Helps where classes are hard to distinguish.

    >>> LayerConfig(granularity="channel", gate_width=32).parts
    'both'
    """

    parts: Parts = "both"
    granularity: Granularity = "element"
    mask: MaskKind = "thresholded"
    gate_width: int = 16
    gate_input: GateInput = "kept"
    class_loss_weight: float = 0.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                raise LayerError(f"{name} must be one of {', '.join(get_args(choices))}, got {getattr(self, name)!r}.")
        if isinstance(self.gate_width, bool) or not isinstance(self.gate_width, int) or self.gate_width < 1:
            raise LayerError(f"gate_width must be an integer of at least 1, got {self.gate_width!r}.")
        if not (isfinite(self.class_loss_weight) and self.class_loss_weight >= 0):
            raise LayerError(f"class_loss_weight must be a finite number of at least 0, got {self.class_loss_weight}.")
        for field in fields(self):
            if field.name in _UNUSED[self.parts] and getattr(self, field.name) != field.default:
                raise LayerError(f"{field.name} has no effect on a layer with parts={self.parts!r}: leave it out.")

    @property
    def has_gate(self) -> bool:
        """Whether the layer stops samples."""
        return self.parts != "compression"

    @property
    def has_compression(self) -> bool:
        """Whether the layer drops dimensions."""
        return self.parts != "gate"
