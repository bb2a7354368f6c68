"""Graphs as devices run them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from penstock.export.onnx.graph import FEW, gather_by_element, to_bytes
from penstock.runtime.engines.onnxruntime import OnnxRuntime


def gather(order, *, shape=("batch", 100), axis=1, dtype=TensorProto.FLOAT):
    """Return a graph that gathers along an axis."""
    node = helper.make_node("Gather", ["x", "order"], ["y"], axis=axis)
    values = helper.make_tensor_value_info("x", dtype, shape), helper.make_tensor_value_info("y", dtype, None)
    order = numpy_helper.from_array(np.array(order, np.int64), "order")
    graph = helper.make_graph([node], "graph", values[:1], values[1:], [order])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


def operators(graph):
    return {node.op_type for node in onnx.load_from_string(to_bytes(graph)).graph.node}


@given(
    st.lists(st.integers(0, 99), min_size=FEW, max_size=150),
    st.integers(1, 9),
    st.sampled_from([(TensorProto.FLOAT, np.float32), (TensorProto.UINT8, np.uint8)]),
)
def test_values_gathered_one_by_one_are_the_same(order, batch, dtypes):
    graph = gather(order, dtype=dtypes[0])
    gather_by_element(graph)
    assert "GatherElements" in operators(graph) and "Gather" not in operators(graph)
    x = np.random.default_rng(0).integers(0, 255, (batch, 100)).astype(dtypes[1])
    np.testing.assert_array_equal(OnnxRuntime(to_bytes(graph)).run(x).values, x[:, order])


@pytest.mark.parametrize(
    "graph",
    [gather(range(FEW - 1)), gather(range(90), shape=("batch", 100, 4)), gather(range(90), shape=(100, 7), axis=0)],
    ids=["few values", "channels", "rows"],
)
def test_what_gather_does_as_fast_is_left_alone(graph):
    gather_by_element(graph)
    assert operators(graph) == {"Gather"}
