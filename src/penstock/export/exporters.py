"""Exporters: turn the stages of a network into files. One module per file format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from torch import Tensor

from penstock.errors import ExportError, require
from penstock.export.precision import Precision
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.manifest import TYPES, TensorSpec
from penstock.runtime.engines import DEFAULT_ENGINES


class StageFile(NamedTuple):
    """One exported stage.

    Attributes:
        content: of the file.
        macs: multiply-accumulates per sample, the gate's included.
        input, output: shape and dtype of one sample.
        error: largest difference from PyTorch's float32 outputs, relative to the largest of them.
        floats: the operators that an int8 stage still computes in float32, and how many of each.
    """

    content: bytes
    macs: int
    input: TensorSpec
    output: TensorSpec
    error: float
    floats: Mapping[str, int]


Exporter: TypeAlias = Callable[[GatedNetwork, Tensor, Precision], list[StageFile]]
"""Exports all stages of a network, given a batch of at least two samples; raises ExportError."""

EXPORTERS = {"onnx": "penstock.export.onnx.stages:export_onnx"}
"""Exporters by file format, which is also the suffix of the files; imported when they are first used.

An export is verified before it is written, so an engine of `penstock.runtime.engines` must run the format.
"""


def load_exporter(file_format: str) -> Exporter:
    """Return the exporter of a file format."""
    if file_format not in EXPORTERS:
        raise ExportError(f"format must be one of {', '.join(EXPORTERS)}, got {file_format!r}")
    if f".{file_format}" not in DEFAULT_ENGINES:
        raise ExportError(f"no engine runs .{file_format} files, so an export could not be verified")
    module, function = EXPORTERS[file_format].split(":")
    return getattr(require(module, extra="train,export"), function)  # type: ignore[no-any-return]


def stage_tensors(net: GatedNetwork, example: Tensor) -> list[TensorSpec]:
    """Return the input of the first stage, the values that cross each link, and the output of the last stage."""
    dtype = str(example.dtype).removeprefix("torch.")
    if dtype not in TYPES:
        raise ExportError(
            f"expected an example of {', '.join(TYPES)}, got {dtype}. Convert the input before the network."
        )
    outputs = [*((layer.transmitted_values,) for layer in net.layers), (net.spec.classes,)]
    return [TensorSpec(tuple(example.shape[1:]), dtype), *(TensorSpec(shape, "float32") for shape in outputs)]
