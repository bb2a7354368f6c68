"""Choose what a gated compression layer consists of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite, prod
from typing import Literal, TypeAlias, get_args

from penstock.errors import LayerError

Parts: TypeAlias = Literal["both", "gate", "compression"]
Granularity: TypeAlias = Literal["element", "channel", "feature"]
MaskKind: TypeAlias = Literal["thresholded", "drawn"]
HeadKind: TypeAlias = Literal["auto", "linear", "conv", "conv2", "attention"]
Bits: TypeAlias = Literal["auto", 32, 8, 4]
GateInput: TypeAlias = Literal["kept", "all"]
TransformKind: TypeAlias = Literal["auto", "none", "cosine"]

_CHOICES = {
    "parts": Parts,
    "granularity": Granularity,
    "mask": MaskKind,
    "bits": Bits,
    "head": HeadKind,
    "gate_input": GateInput,
    "transform": TransformKind,
}
_UNUSED = {
    "both": (),
    "gate": ("mask", "keep", "transform"),
    "compression": ("head", "gate_width", "gate_input", "class_loss_weight"),
}


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
        keep: how much may cross the cut: 410 values, a share such as 0.05, or "1640 bytes". Training drops the rest,
            what matters least to the loss first (`penstock.training.thinning`). None: β decides, as in the paper.
        transform: what ``keep`` chooses from. "none": the values themselves, as in the paper; "cosine": coefficients of
            images (C, H, W) and series (C, T), in which far fewer say the same (`Transform`); "auto": cosine where it
            is possible and takes at most 5 % of the network's multiply-accumulates.
        bits: of each value that crosses; 8 or 4 send more values in the same bytes. "auto": 4 if ``keep`` is in bytes,
            which was the most accurate, else 32.
        head: how the gate reads the features. "linear": one linear layer on what the mask keeps, the paper's gate;
            "conv", "conv2": one or two strided convolutions on all features, for images (C, H, W) and series (C, T);
            "attention": attention pooling, for tokens (T, D). "auto": what suits the features.
        gate_width: the hidden units of the gate, or the channels of its first convolution; None for 16 units, or as
            many channels as the features have, 8 to 64, and fewer where the convolutions would cost more than 2.5 % of
            the network's multiply-accumulates.
        gate_input: what a linear head reads. "kept": one value per kept mask dimension (the mean over a channel or
            feature); "all": every value of the kept dimensions, for inputs of a fixed size.
        class_loss_weight: 0 for the paper's gate; above 0, the gate also learns to predict the class, with this weight
            in its loss (`ClassGate`). Helps where classes are hard to distinguish. None: 0.3, with a linear head 0.

    >>> LayerConfig(granularity="channel", gate_width=32).parts
    'both'
    """

    parts: Parts = "both"
    granularity: Granularity = "element"
    mask: MaskKind = "thresholded"
    keep: int | float | str | None = None
    transform: TransformKind = "auto"
    bits: Bits = "auto"
    head: HeadKind = "auto"
    gate_width: int | None = None
    gate_input: GateInput = "kept"
    class_loss_weight: float | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                raise LayerError(
                    f"{name} must be one of {', '.join(map(str, get_args(choices)))}, got {getattr(self, name)!r}."
                )
        width = self.gate_width
        if width is not None and (isinstance(width, bool) or not isinstance(width, int) or width < 1):
            raise LayerError(f"gate_width must be an integer of at least 1, got {width!r}.")
        weight = self.class_loss_weight
        if weight is not None and not (isfinite(weight) and weight >= 0):
            raise LayerError(f"class_loss_weight must be a finite number of at least 0, got {weight}.")
        if self.keep is not None and not _is_amount(self.keep):
            raise LayerError(
                f"keep must be a number of values (410), a share (0.05) or bytes ('1640 bytes'), got {self.keep!r}."
            )
        if self.transform == "cosine" and (self.keep is None or self.granularity != "element"):
            raise LayerError("transform='cosine' chooses among the elements for keep=...: set keep, or leave it out.")
        for field in fields(self):
            if field.name in _UNUSED[self.parts] and getattr(self, field.name) != field.default:
                raise LayerError(f"{field.name} has no effect on a layer with parts={self.parts!r}: leave it out.")

        if self.gate_input != "kept" and self.head not in ("auto", "linear"):
            raise LayerError(
                f"gate_input has no effect on a {self.head!r} head, which reads all features: leave it out."
            )

    def kept_dimensions(self, feature: tuple[int, ...]) -> int | None:
        """Return how many mask dimensions ``keep`` stands for, for features of this shape; None without it.

        >>> LayerConfig(keep="100 bytes", bits=8).kept_dimensions((16, 14, 14))
        100
        >>> LayerConfig(keep=0.25, granularity="channel").kept_dimensions((16, 14, 14))
        4
        """
        if self.keep is None:
            return None
        values = prod(feature)
        if isinstance(self.keep, str):
            wanted: float = int(self.keep.split()[0]) * 8 // self.sent_bits
        else:
            wanted = self.keep if isinstance(self.keep, int) else self.keep * values
        dimensions = {"element": values, "channel": feature[0], "feature": feature[-1]}[self.granularity]
        kept = int(wanted * dimensions / values)
        if not 1 <= kept <= dimensions:
            least = values // dimensions
            raise LayerError(
                f"keep must be {least} (one {self.granularity}) to {values} values of these features, got "
                f"{self.keep!r}, which is {wanted:g} values."
            )
        return kept

    @property
    def sent_bits(self) -> int:
        """The bits of each value that crosses, with "auto" decided."""
        if self.bits == "auto":
            return 4 if isinstance(self.keep, str) else 32
        return self.bits

    @property
    def has_gate(self) -> bool:
        """Whether the layer stops samples."""
        return self.parts != "compression"

    @property
    def has_compression(self) -> bool:
        """Whether the layer drops dimensions."""
        return self.parts != "gate"


def _is_amount(keep: object) -> bool:
    if isinstance(keep, str):
        number, _, unit = keep.partition(" ")
        return number.isdecimal() and unit == "bytes"
    return not isinstance(keep, bool) and (
        (isinstance(keep, int) and keep > 0) or (isinstance(keep, float) and 0 < keep < 1)
    )
