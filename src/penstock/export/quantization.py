"""Stages that reckon in 8 bits, by onnxruntime's static quantisation; a gate's logit stays a float."""

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

from penstock.export.onnx_graph import cleaned
from penstock.runtime.bundle.graph_names import GATE, INPUT


def quantize(graph: ir.Model, seen: Sequence[np.ndarray]) -> ir.Model:
    """Return a graph whose convolutions and matrix products reckon in 8 bits.

    What only the gate needs stays in floats: its logit is held against a threshold, and a range that was seen on some
    samples would clip it on others.

    Args:
        seen: batches of what the stage takes; the ranges of its values are taken from them.
    """
    common.NameFixPass()(graph)
    for number, node in enumerate(graph.graph):
        node.name = f"{node.op_type}_{number}"
    kept = [node.name for node in _of_the_gate_alone(graph)]
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "stage.onnx"
        quantize_static(
            ir.to_proto(graph),
            path,
            _Seen(seen),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=kept,
            extra_options={"ActivationSymmetric": False, "WeightSymmetric": True, "ForceQuantizeNoInputCheck": False},
        )
        return cleaned(ir.from_proto(onnx.load(path)))


def _of_the_gate_alone(graph: ir.Model) -> list[ir.Node]:
    """Return the operations that nothing but the gate's logit needs."""
    outputs = {value.name: value for value in graph.graph.outputs}
    if GATE not in outputs:
        return []
    gate = outputs.pop(GATE)
    needed = set().union(*(_behind(value) for value in outputs.values()))
    return [node for node in graph.graph if node in _behind(gate) and node not in needed]


def _behind(value: ir.Value) -> set[ir.Node]:
    """Return the operations that a value is computed by."""
    found: set[ir.Node] = set()
    waiting = [value.producer()]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [source.producer() for source in node.inputs if source is not None]
    return found


class _Seen(CalibrationDataReader):  # type: ignore[misc]
    """Batches, one after the other."""

    def __init__(self, batches: Sequence[np.ndarray]):
        self._left = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self._left, None)
        return None if batch is None else {INPUT: batch}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantiser from recommending a preparation that was done."""
    talker = logging.getLogger()
    before = talker.level
    talker.setLevel(logging.ERROR)
    try:
        yield
    finally:
        talker.setLevel(before)
