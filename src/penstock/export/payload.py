"""In which type values cross a link: graphs give it and take it, so that a runtime ships bytes and reckons nothing."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from penstock.runtime.bundle.graph_names import INPUT, PACKED
from penstock.runtime.bundle.manifest import TensorSpec

LEVELS = 255
"""Steps between the smallest and the largest number of 8 bits."""

LOWEST = -128


def spread_over(values: np.ndarray) -> tuple[float, int]:
    """Return scale and zero point of 8-bit numbers that reach from the lowest of the values to the highest, and hold 0.

    >>> scale, zero_point = spread_over(np.array([0.0, 2.55], np.float32))
    >>> round(scale, 6), zero_point
    (0.01, -128)
    """
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = (high - low) / LEVELS or 1.0
    return float(np.float32(scale)), int(np.clip(round(LOWEST - low / scale), LOWEST, LOWEST + LEVELS))


def give(graph: ir.Model, values: TensorSpec) -> None:
    """Let a graph give its packed values in another type; it is changed in place."""
    if values.dtype == "float32":
        return
    index, old = next((i, value) for i, value in enumerate(graph.graph.outputs) if value.name == PACKED)
    old.name = f"{PACKED}_float32"
    node = _cast(graph, old, values) if values.scale is None else _scaled(graph, "QuantizeLinear", old, values)
    made = node.outputs[0]
    made.name, made.dtype, made.shape = PACKED, _type(values.dtype), old.shape
    graph.graph.append(node)
    graph.graph.outputs[index] = made


def take(graph: ir.Model, values: TensorSpec) -> None:
    """Let a graph take values in another type; it is changed in place."""
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


def _cast(graph: ir.Model, value: ir.Value, values: TensorSpec) -> ir.Node:
    return ir.node("Cast", [value], {"to": _type(values.dtype)})


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
