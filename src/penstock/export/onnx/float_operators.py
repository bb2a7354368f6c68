"""List what a quantized graph still computes in float32, after onnxruntime has fused it."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime as ort

_TO_CODES, _FROM_CODES = "QuantizeLinear", "DequantizeLinear"
_MOVES = {
    *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "Identity", "Pad", "Reshape", "Shape", "Slice"),
    *("Split", "Squeeze", "Transpose", "Unsqueeze"),
}
"""Operators that move values and compute nothing."""


def float_operators(graph: bytes) -> dict[str, int]:
    """Return how many operators of each kind compute with float32 values."""
    fused = _fused(graph)
    floats = {value.name for value in fused.input if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    found: Counter[str] = Counter()
    for node in fused.node:
        if node.op_type == _FROM_CODES or (node.op_type != _TO_CODES and floats.intersection(node.input)):
            floats.update(node.output)
            if node.op_type not in (_FROM_CODES, *_MOVES):
                found[node.op_type] += 1
    return dict(found)


def _fused(graph: bytes) -> onnx.GraphProto:
    """Return the graph with onnxruntime's fusions, but without its layouts for this processor."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(folder) / "fused.onnx")
        options.log_severity_level = 4
        ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath).graph
