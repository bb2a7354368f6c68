"""Convert the values that cross a link inside the graphs, so that a runtime only moves bytes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from penstock.runtime.bundle.graph_names import INPUT, PACKED
from penstock.runtime.bundle.manifest import TensorSpec


def quantization_of(values: np.ndarray, dtype: str = "int8") -> tuple[float, int]:
    """Return scale and zero point of 8-bit values that cover all of these values, and 0.

    >>> scale, zero_point = quantization_of(np.array([0.0, 2.55], np.float32))
    >>> round(scale, 6), zero_point
    (0.01, -128)
    """
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = (high - low) / (most - least) or 1.0
    return float(np.float32(scale)), int(np.clip(round(least - low / scale), least, most))


def convert_output(graph: ir.Model, values: TensorSpec) -> None:
    """Convert the packed output to the dtype that crosses the link; the graph is changed in place."""
    if values.dtype == "float32":
        return
    index, old = next((i, value) for i, value in enumerate(graph.graph.outputs) if value.name == PACKED)
    old.name = f"{PACKED}_float32"
    if values.scale is None:
        node = ir.node("Cast", [old], {"to": _type(values.dtype)})
    else:
        node = _scaled(graph, "QuantizeLinear", old, values)
    new = node.outputs[0]
    new.name, new.dtype, new.shape = PACKED, _type(values.dtype), old.shape
    graph.graph.append(node)
    graph.graph.outputs[index] = new


def convert_input(graph: ir.Model, values: TensorSpec) -> None:
    """Convert the input from the dtype that crosses the link; the graph is changed in place."""
    if values.dtype == "float32":
        return
    old = graph.graph.inputs[0]
    new = ir.Value(name=INPUT, shape=old.shape, type=ir.TensorType(_type(values.dtype)))
    old.name = f"{INPUT}_float32"
    if values.scale is None:
        node = ir.node("Cast", [new], {"to": ir.DataType.FLOAT})
    else:
        node = _scaled(graph, "DequantizeLinear", new, values)
    graph.graph.insert_before(graph.graph[0], node)
    old.replace_all_uses_with(node.outputs[0])
    graph.graph.inputs[0] = new


def _scaled(graph: ir.Model, op: str, value: ir.Value, values: TensorSpec) -> ir.Node:
    parts = []
    for name, array in (
        ("scale", np.array(values.scale, np.float32)),
        ("zero_point", np.array(values.zero_point, values.dtype)),
    ):
        part = ir.Value(name=f"{op}_{name}", const_value=ir.tensor(array, name=f"{op}_{name}"))
        part.shape, part.dtype = ir.Shape(()), ir.DataType.from_numpy(array.dtype)
        graph.graph.register_initializer(part)
        parts.append(part)
    return ir.node(op, [value, *parts])


def _type(dtype: str) -> ir.DataType:
    return ir.DataType.from_numpy(np.dtype(dtype))
