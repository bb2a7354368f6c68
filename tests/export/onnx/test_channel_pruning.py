"""A folded graph computes the same with less."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from penstock.export.onnx.channel_pruning import prune_channels
from penstock.export.onnx.graph import cleaned, macs

SIZE = 5


class Builder:
    """A small graph, operation by operation."""

    def __init__(self, seed):
        self.draw, self.nodes, self.constants = np.random.default_rng(seed), [], []

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape) -> str:
        return self.constant(self.draw.normal(size=shape).astype(np.float32))

    def add(self, op, *inputs, **attributes) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def model(self, channels, *outputs) -> onnx.ModelProto:
        """The graph, with its last values named as outputs."""
        names = [f"out{i}" for i in range(len(outputs))]
        self.nodes += [
            helper.make_node("Identity", [value], [name]) for value, name in zip(outputs, names, strict=True)
        ]
        graph = helper.make_graph(
            self.nodes,
            "small",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", channels, SIZE, SIZE])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def conv(b, x, into, out) -> str:
    return b.add("Conv", x, b.weights(out, into, 3, 3), b.weights(out), pads=[1, 1, 1, 1])


def residual(b, x, into, out) -> str:
    return b.add("Relu", b.add("Add", conv(b, x, into, out), x if into == out else conv(b, x, into, out)))


def separable(b, x, into, out) -> str:
    apart = b.add("Conv", conv(b, x, into, out), b.weights(out, 1, 3, 3), pads=[1, 1, 1, 1], group=out)
    return b.add("HardSwish", apart)


def normed(b, x, into, out) -> str:
    spread = b.constant(b.draw.uniform(0.5, 2, out).astype(np.float32))
    return b.add("BatchNormalization", conv(b, x, into, out), *(b.weights(out) for _ in range(3)), spread)


def scaled(b, x, into, out) -> str:
    shifted = b.add("Add", b.add("Mul", conv(b, x, into, out), b.weights(out, 1, 1)), b.weights(1))
    return b.add("MaxPool", shifted, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def excited(b, x, into, out) -> str:
    """A channel's mean decides how loud it is, as in squeeze-and-excitation."""
    loud = conv(b, x, into, out)
    mean = b.add("GlobalAveragePool", loud)
    return b.add("Mul", loud, b.add("Sigmoid", b.add("Conv", mean, b.weights(out, out, 1, 1))))


def grouped(b, x, into, out) -> str:
    """Neither one group nor a group a channel: it is left whole."""
    return b.add("Conv", conv(b, x, into, 2 * out), b.weights(out, 2, 3, 3), pads=[1, 1, 1, 1], group=out)


BLOCKS = (conv, residual, separable, normed, scaled, excited, grouped)


def same(model, folded, channels) -> None:
    x = np.random.default_rng(1).normal(size=(3, channels, SIZE, SIZE)).astype(np.float32)
    outs = []
    for each in (model, ir.to_proto(folded)):
        onnx.checker.check_model(each, full_check=True)
        outs.append(
            ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        )
    for ours, theirs in zip(*outs, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(ours).max()))


def selected(b, value, kept) -> str:
    return b.add("Gather", value, b.constant(np.array(kept, np.int64)), axis=1)


@settings(max_examples=150, deadline=None)
@given(
    blocks=st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=4),
    widths=st.lists(st.integers(1, 6), min_size=5, max_size=5),
    kept=st.sets(st.integers(0, 5), min_size=1),
    also_read=st.booleans(),
    seed=st.integers(0, 99),
)
def test_computing_less_is_computing_the_same(blocks, widths, kept, also_read, seed) -> None:
    b, value = Builder(seed), "x"
    for block, into, out in zip(blocks, widths, widths[1:], strict=False):
        value = block(b, value, into, out)
    out = widths[len(blocks)]
    kept = sorted({channel % out for channel in kept})
    outputs = [selected(b, value, kept), *([value] if also_read else [])]
    model = b.model(widths[0], *outputs)
    folded = ir.from_proto(model)
    before = macs(folded)
    cleaned(prune_channels(folded))
    same(model, folded, widths[0])
    assert macs(folded) <= before
    if blocks[-1] is conv and len(kept) < out and not also_read:
        assert macs(folded) < before and not any(node.op_type == "Gather" for node in folded.graph)


@settings(max_examples=100, deadline=None)
@given(
    block=st.sampled_from((conv, residual, separable, excited, grouped)),
    channels=st.integers(1, 6),
    kept=st.sets(st.integers(0, 5), min_size=1),
    out=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_reading_less_is_reading_the_same(block, channels, kept, out, seed) -> None:
    kept = sorted({channel % channels for channel in kept})
    b = Builder(seed)
    places = np.full(channels, len(kept))
    places[kept] = np.arange(len(kept))
    padded = b.add("Pad", "x", b.constant(np.array([0, 0, 0, 0, 0, 1, 0, 0], np.int64)))
    model = b.model(len(kept), block(b, selected(b, padded, places.tolist()), channels, out))
    folded = ir.from_proto(model)
    before = macs(folded)
    cleaned(prune_channels(folded))
    same(model, folded, len(kept))
    if len(kept) < channels:
        assert macs(folded) < before
    if block is conv:
        assert not {"Pad", "Gather"} & {node.op_type for node in folded.graph}


@settings(max_examples=100, deadline=None)
@given(
    pads=st.sampled_from(([0, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1, 0, 0])),
    mode=st.sampled_from(("constant", "edge")),
    filling=st.sampled_from((0.0, 2.0)),
    places=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_a_networks_own_padding_and_picking_stays_what_it_is(pads, mode, filling, places, seed) -> None:
    b = Builder(seed)
    with_value = [b.constant(np.float32(filling))] if mode == "constant" else []
    padded = b.add("Pad", "x", b.constant(np.array(pads, np.int64)), *with_value, mode=mode)
    model = b.model(3, conv(b, selected(b, padded, places), len(places), 2))
    same(model, cleaned(prune_channels(ir.from_proto(model))), 3)


@pytest.mark.parametrize("axis", [0, 2, 3])
def test_selections_of_other_axes_are_left_alone(axis) -> None:
    b = Builder(0)
    value = conv(b, "x", 2, 3)
    model = b.model(2, b.add("Gather", value, b.constant(np.array([0, 1], np.int64)), axis=axis))
    folded = prune_channels(ir.from_proto(model))
    assert [node.op_type for node in folded.graph] == ["Conv", "Gather", "Identity"]
    same(model, folded, 2)
