"""Encode values that cross a link as a layer's `Quantizer` has them: a byte each, or two of 4 bits to a byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from torch import Tensor

from penstock.gating.layers import GatedCompression
from penstock.runtime.bundle.graph_names import INPUT, PACKED

LEVELS = 16  # of 4 bits


class _Part:
    """Operations that are added to a graph, before its first or after its last one."""

    def __init__(self, graph: ir.Model, value: ir.Value):
        self._graph, self.value, self.nodes = graph.graph, value, list[ir.Node]()

    def add(self, op: str, *inputs: ir.Value | np.ndarray, **attributes: Any) -> ir.Value:
        """Add an operation on the value, unless the first input is one itself, and make its output the value."""
        first = [] if inputs and isinstance(inputs[0], ir.Value) else [self.value]
        node = ir.node(op, [*first, *(self._constant(each) for each in inputs)], attributes)
        self.nodes.append(node)
        self.value = node.outputs[0]
        return self.value

    def _constant(self, given: ir.Value | np.ndarray) -> ir.Value:
        if isinstance(given, ir.Value):
            return given
        name = f"payload_{len(self._graph.initializers)}"
        constant = ir.Value(name=name, const_value=ir.tensor(given, name=name))
        constant.shape, constant.dtype = ir.Shape(given.shape), ir.DataType.from_numpy(given.dtype)
        self._graph.register_initializer(constant)
        return constant


def encode_output(graph: ir.Model, layer: GatedCompression) -> None:
    """Encode the packed output; the graph is changed in place."""
    index, old = next((i, value) for i, value in enumerate(graph.graph.outputs) if value.name == PACKED)
    step, zero = _steps_and_zeros(layer)
    old.name = f"{PACKED}_float32"
    part = _Part(graph, old)
    part.add("QuantizeLinear", step, zero, axis=1)
    if layer.config.sent_bits == 4:
        part.add("Clip", np.array(0, np.uint8), np.array(LEVELS - 1, np.uint8))
        codes = part.add("Cast", to=ir.DataType.FLOAT)
        first, second = _halves(len(step))
        low = part.add("Gather", codes, second, axis=1)
        part.add("Gather", codes, first, axis=1)
        high = part.add("Mul", np.array(LEVELS, np.float32))
        part.add("Add", high, low)
        part.add("Cast", to=ir.DataType.UINT8)
    graph.graph.extend(part.nodes)
    _declare(part.value, PACKED, layer)
    graph.graph.outputs[index] = part.value


def decode_input(graph: ir.Model, layer: GatedCompression) -> None:
    """Decode the input of the next stage; the graph is changed in place."""
    old = graph.graph.inputs[0]
    step, zero = _steps_and_zeros(layer)
    old.name = f"{INPUT}_float32"
    new = ir.Value(name=INPUT)
    _declare(new, INPUT, layer)
    part = _Part(graph, new)
    if layer.config.sent_bits == 8:
        part.add("DequantizeLinear", step, zero, axis=1)
    else:
        received = part.add("Cast", to=ir.DataType.FLOAT)
        part.add("Div", np.array(LEVELS, np.float32))
        first = part.add("Floor")
        shifted = part.add("Mul", np.array(LEVELS, np.float32))
        second = part.add("Sub", received, shifted)
        both = part.add("Concat", first, second, axis=1)
        values, pairs = len(step), len(_halves(len(step))[0])
        order = [i // 2 + pairs * (i % 2) for i in range(values)]
        part.add("Gather", both, np.array(order, np.int64), axis=1)
        part.add("Sub", zero.astype(np.float32))
        part.add("Mul", step)
    graph.graph.insert_before(graph.graph[0], part.nodes)
    old.replace_all_uses_with(part.value)
    graph.graph.inputs[0] = new


def _declare(value: ir.Value, name: str, layer: GatedCompression) -> None:
    value.name, value.dtype = name, ir.DataType.UINT8
    value.shape = ir.Shape(["batch", layer.transmitted_bytes])


def _halves(values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which values are the upper and the lower half of each byte; of an odd number, the first fills the last."""
    first, second = np.arange(0, values, 2), np.arange(1, values + 1, 2)
    return first, np.where(second < values, second, 0)


def _steps_and_zeros(layer: GatedCompression) -> Sequence[np.ndarray]:
    """Return the step and the code of 0 of each value that is sent."""
    assert layer.quantizer is not None
    step, zero = layer.quantizer.step.detach().abs().clamp(min=1e-8), layer.quantizer.zero

    def packed(per_channel: Tensor) -> np.ndarray:
        whole = per_channel.expand(layer.feature)[None]
        chosen = whole if layer.compression is None else layer.layout.pack(whole, layer.compression.kept)
        return chosen.flatten().numpy()  # type: ignore[no-any-return]

    return packed(step).astype(np.float32), packed(zero).astype(np.uint8)
