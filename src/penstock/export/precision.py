"""In which numbers the stages of a bundle compute, and in which file format they are written."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from penstock.datasets.loading import Data
from penstock.errors import ExportError

Target: TypeAlias = Literal["x86", "arm"]

ACTIVATIONS = {"x86": "uint8", "arm": "int8"}
"""The dtype of quantized activations that a processor's kernels are written for."""


@dataclass(frozen=True)
class Float32:
    """Stages compute in float32.

    Attributes:
        payload: dtype of the values that cross a link.
        format: file format of the stages, a key of `penstock.export.exporters.EXPORTERS`.
        tolerance: see `Int8`.
    """

    payload: Literal["float32", "float16"] = "float32"
    format: str = "onnx"
    tolerance: float = 0.001


@dataclass(frozen=True, eq=False)
class Int8:
    """Stages compute in 8 bits, and 8-bit values cross a link.

    Attributes:
        calibration_data: data from which the ranges of all values are measured, such as the training data.
        held_out: data on which thresholds are recalibrated for the network's guarantee, because quantization changes
            the gates' logits. Without it thresholds stay as they are, and the bundle has no guarantee.
        tolerance: how far accuracy and early stopping may fall, and positives lost may rise, on ``check_on``.
        format: as in `Float32`.
        target: the processor that runs the bundle, "x86" or "arm": activations are uint8 on the one and int8 on the
            other, as its kernels want them; both run everywhere. None for a processor like that of this machine.
    """

    calibration_data: Data
    held_out: Data | None = None
    tolerance: float = 0.005
    format: str = "onnx"
    target: Target | None = None

    def __post_init__(self) -> None:
        if self.target is not None and self.target not in get_args(Target):
            raise ExportError(f"target must be one of {', '.join(get_args(Target))}, got {self.target!r}")

    @property
    def activations(self) -> str:
        """The dtype of quantized activations, and of the values that cross a link."""
        own: Target = "arm" if platform.machine().lower().startswith(("arm", "aarch")) else "x86"
        return ACTIVATIONS[self.target or own]


Precision: TypeAlias = Float32 | Int8
