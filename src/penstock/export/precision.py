"""In which numbers the stages of a bundle compute, and in which file format they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from penstock.datasets.loading import Data


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
    """

    calibration_data: Data
    held_out: Data | None = None
    tolerance: float = 0.005
    format: str = "onnx"


Precision: TypeAlias = Float32 | Int8
