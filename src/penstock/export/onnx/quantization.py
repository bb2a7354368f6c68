"""Quantize stages to int8 with onnxruntime's static quantization; a gate's logit stays in float32."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from penstock.export.onnx.graph import cleaned
from penstock.runtime.bundle.graph_names import GATE, INPUT

FEW = 4
"""Channels of a picture that a convolution in float32 reads faster than one in 8 bits."""


def quantize(
    graph: ir.Model, calibration: Sequence[np.ndarray], activations: str = "int8", *, products: tuple[int, int] = (0, 0)
) -> ir.Model:
    """Return a graph whose convolutions and matrix products compute in int8.

    Operations that only the gate's logit depends on, after its convolutions, stay in float32: a range measured on the
    calibration data would clip the logit on other data. So do changes of coordinates before and after a cut: their
    sums of many values need more than 8 bits. On x86 (uint8) so does a convolution that reads a picture's few
    channels: 8-bit kernels gain nothing there, and quantizing the input takes time.

    Args:
        calibration: batches of the stage's input, from which the ranges of its values are measured.
        activations: their dtype, int8 or uint8; weights are int8.
        products: how many matrix products change coordinates, right after the input and right before what is sent.
    """
    common.NameFixPass()(graph)
    for number, node in enumerate(graph.graph):
        node.name = f"{node.op_type}_{number}"
    floats = [
        *_after_convolutions(_gate_only(graph)),
        *_after_input(graph, products[0]),
        *_before_sent(graph, products[1]),
    ]
    if activations == "uint8":
        floats += _on_few_channels(graph)
    excluded = [node.name for node in floats]
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "stage.onnx"
        quantize_static(
            ir.to_proto(graph),
            path,
            _Calibration(calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8 if activations == "uint8" else QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=excluded,
            extra_options={"ActivationSymmetric": False, "WeightSymmetric": True, "ForceQuantizeNoInputCheck": False},
        )
        return cleaned(ir.from_proto(onnx.load(path)))


def _gate_only(graph: ir.Model) -> list[ir.Node]:
    """Return the operations that only the gate's logit depends on."""
    outputs = {value.name: value for value in graph.graph.outputs}
    if GATE not in outputs:
        return []
    gate = outputs.pop(GATE)
    needed = set().union(*(_producers(value) for value in outputs.values()))
    return [node for node in graph.graph if node in _producers(gate) and node not in needed]


def _after_convolutions(nodes: list[ir.Node]) -> list[ir.Node]:
    """Return those after the last convolution among them and its ReLU, which its kernel computes."""
    convolutions = {node for node in nodes if node.op_type == "Conv"}
    before = {
        source for node in convolutions for value in node.inputs if value is not None for source in _producers(value)
    }
    relus = {use.node for node in convolutions for use in node.outputs[0].uses() if use.node.op_type == "Relu"}
    return [node for node in nodes if node not in convolutions | before | relus]


def _on_few_channels(graph: ir.Model) -> list[ir.Node]:
    """Return the convolutions on the stage's own input, if that is a picture of few channels."""
    (value,) = graph.graph.inputs
    if value.shape is None or len(value.shape) != 4 or not isinstance(value.shape[1], int) or value.shape[1] > FEW:
        return []
    return [use.node for use in value.uses() if use.node.op_type == "Conv"]


def _after_input(graph: ir.Model, products: int) -> list[ir.Node]:
    """Return the operations from the input on, up to this many matrix products."""
    value, found = graph.graph.inputs[0], list[ir.Node]()
    while products:
        (node,) = (use.node for use in value.uses() if use.node.op_type != "Shape")
        found.append(node)
        products -= node.op_type == "MatMul"
        value = node.outputs[0]
    return found


def _before_sent(graph: ir.Model, products: int) -> list[ir.Node]:
    """Return the last operations before what is sent, from this many matrix products on."""
    value, found = graph.graph.outputs[0], list[ir.Node]()
    while products:
        node = value.producer()
        assert node is not None
        found.append(node)
        products -= node.op_type == "MatMul"
        value = next(each for each in node.inputs if each is not None and each.const_value is None)
    return found


def _producers(value: ir.Value) -> set[ir.Node]:
    """Return the operations that a value depends on."""
    found: set[ir.Node] = set()
    waiting = [value.producer()]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [source.producer() for source in node.inputs if source is not None]
    return found


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    """The calibration batches, as onnxruntime reads them."""

    def __init__(self, batches: Sequence[np.ndarray]):
        self._left = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self._left, None)
        return None if batch is None else {INPUT: batch}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantizer from recommending preprocessing that was done already."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
