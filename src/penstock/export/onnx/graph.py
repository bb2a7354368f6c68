"""Convert a stage to an ONNX graph, and remove what a device does not need."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from math import prod

import onnx_ir as ir
import torch
from onnx_ir.passes import common
from torch import Tensor

from penstock.errors import ExportError
from penstock.export.stage_module import DeployedStage
from penstock.runtime.bundle.graph_names import GATE, INPUT, LOGITS, PACKED

OPSET = 20
FEW = 64
"""Fewer values than that are gathered as fast by Gather."""


def to_graph(stage: DeployedStage, values: Tensor, number: int) -> ir.Model:
    """Return a stage as a graph whose first axis is a batch of any size.

    Args:
        values: a batch of the stage's input; at least two samples, or torch takes the batch size for a constant.
        number: of the stage, for errors.

    Raises:
        ExportError: when torch cannot export the stage.
    """
    outputs = [LOGITS] if stage.next_layer is None else [PACKED, *([GATE] if stage.gate is not None else [])]
    try:
        with _quiet():
            program = torch.onnx.export(
                stage,
                (values,),
                dynamo=True,
                input_names=[INPUT],
                output_names=outputs,
                dynamic_shapes={INPUT: {0: torch.export.Dim.DYNAMIC}},
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:  # of many kinds: torch, onnxscript and what the user's modules raise
        lines = [line.strip() for line in str(error.__cause__ or error).splitlines() if line.strip()]
        raise ExportError(
            f"stage {number} cannot be exported: {lines[0] if lines else type(error).__name__}. A stage must be a "
            "static graph: no control flow that depends on values, and a first axis that is a batch of any size."
        ) from error
    assert program is not None
    return cleaned(program.model)


def cleaned(graph: ir.Model) -> ir.Model:
    """Remove unused operations, and metadata that names files of the exporting machine."""
    common.RemoveUnusedNodesPass()(graph)
    common.ClearMetadataAndDocStringPass()(graph)
    graph.producer_name = graph.producer_version = None
    return graph


def gather_by_element(graph: ir.Model) -> None:
    """Take GatherElements where single values are gathered; the graph is changed in place.

    onnxruntime's Gather copies blocks: of one value each, it takes five times as long.
    """
    common.ShapeInferencePass()(graph)
    for node in [node for node in graph.graph if node.op_type == "Gather"]:
        values, chosen = node.inputs
        assert values is not None and chosen is not None
        order = None if chosen.const_value is None else chosen.const_value.numpy()
        if order is None or order.ndim != 1 or order.size < FEW or values.shape is None or len(values.shape) != 2:
            continue
        if node.attributes.get_int("axis", 0) != 1:
            continue
        batch = ir.node("Shape", [values], {"start": 0, "end": 1})
        width = ir.node("Constant", [], {"value_ints": list(order.shape)})
        shape = ir.node("Concat", [batch.outputs[0], width.outputs[0]], {"axis": 0})
        rows = ir.node("Expand", [chosen, shape.outputs[0]])
        gather = ir.node("GatherElements", [values, rows.outputs[0]], {"axis": 1})
        ir.convenience.replace_nodes_and_values(
            graph.graph, node, [node], [batch, width, shape, rows, gather], node.outputs, gather.outputs
        )


def to_bytes(graph: ir.Model) -> bytes:
    """Return the content of a file."""
    return ir.to_proto(graph).SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def macs(graph: ir.Model) -> int:
    """Return the multiply-accumulates of one sample: convolutions, matrix products, recurrent layers."""
    common.ShapeInferencePass()(graph)
    return sum(_macs(node) for node in graph.graph)


def _macs(node: ir.Node) -> int:
    count = _COUNTS.get(node.op_type)
    return 0 if count is None else count(node)


def _of_convolution(node: ir.Node) -> int:
    """Each value of the output reads one filter."""
    return prod(_sizes(node.outputs[0])[1:]) * prod(_sizes(node.inputs[1])[1:])


def _of_transposed(node: ir.Node) -> int:
    return prod(_sizes(node.inputs[0])[1:]) * prod(_sizes(node.inputs[1])[1:])


def _of_product(node: ir.Node) -> int:
    """Each value of the output reads a row, as long as the input's last axis."""
    return prod(_sizes(node.outputs[0])[1:]) * _sizes(node.inputs[0])[-1]


def _of_recurrent(node: ir.Node) -> int:
    """Each step reads both matrices; the steps are the input's first axis."""
    return _sizes(node.inputs[0])[0] * sum(prod(_sizes(weights)) for weights in node.inputs[1:3])


_COUNTS = {
    "Conv": _of_convolution,
    "ConvTranspose": _of_transposed,
    "Gemm": _of_product,
    "MatMul": _of_product,
    "LSTM": _of_recurrent,
    "GRU": _of_recurrent,
    "RNN": _of_recurrent,
}


def _sizes(value: ir.Value | None) -> list[int]:
    """Return a shape; the batch and unknown sizes count as 1."""
    if value is None or value.shape is None:
        return [1]
    return [size if isinstance(size, int) else 1 for size in value.shape]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages about optional packages and deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
