"""Remove the computation of channels that a mask drops.

A channel mask is a Gather along the channels, after the stage's last operation. Each rule below moves it one operation
up, towards the input; at a convolution it removes filters. In the next stage the dropped channels are zeros, so a
convolution that reads them loses the columns of its filters. A value with more than one consumer is left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

CHANNELS = 1
"""The axis of the channels."""

# fmt: off
ALIKE = frozenset((
    "Abs", "AveragePool", "Cast", "Celu", "Clip", "Elu", "Erf", "Exp", "Gelu", "GlobalAveragePool", "GlobalMaxPool",
    "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "MaxPool", "Mish", "Neg", "Relu", "Selu", "Sigmoid",
    "Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu",
))
# fmt: on
"""Operations that treat every channel alone and in the same way."""

PAIRS = frozenset(("Add", "Div", "Max", "Min", "Mul", "Sub"))
"""Channel-wise operations on two values."""


def prune_channels(graph: ir.Model) -> ir.Model:
    """Remove the computation of dropped channels; the graph is changed in place."""
    for node in [node for node in graph.graph if node.op_type == "Gather" and _is_unpacking(node)]:
        _read_packed(graph.graph, node)
    for node in [node for node in graph.graph if node.op_type == "Gather" and not _is_unpacking(node)]:
        _push_up(graph.graph, node)
    return graph


def _push_up(graph: ir.Graph, gather: ir.Node) -> None:
    """Move a selection of channels up as far as it goes."""
    value, kept = gather.inputs[0], _selection(gather)
    if value is None or kept is None:
        return
    selected = _Selection(graph, kept, gather).of(value)
    if selected is not None:
        name = gather.outputs[0].name
        gather.outputs[0].replace_all_uses_with(selected, replace_graph_outputs=True)
        graph.remove(gather, safe=True)
        selected.name = name


class _Selection:
    """Compute only the kept channels of values; new operations are inserted before ``before``."""

    def __init__(self, graph: ir.Graph, kept: np.ndarray, before: ir.Node):
        self.graph, self.kept, self.before = graph, kept, before

    def of(self, value: ir.Value) -> ir.Value | None:
        """Return the kept channels of a value; None where all of them must be computed."""
        node = value.producer()
        if node is None or len(value.uses()) > 1 or value.is_graph_output():
            return None
        rule = _RULES.get(node.op_type, _alike if node.op_type in ALIKE else None)
        return None if rule is None else rule(self, node)

    def or_gathered(self, value: ir.Value) -> ir.Value:
        """Return the kept channels of a value, by Gather where all of them must be computed."""
        selected = self.of(value)
        if selected is not None:
            return selected
        return self.add("Gather", [value, self.constant(self.kept)], {"axis": CHANNELS})

    def rows(self, value: ir.Value, axis: int = 0) -> ir.Value | None:
        """Return the kept channels of a constant; None if the value is not constant."""
        array = _array(value)
        return None if array is None else self.constant(np.take(array, self.kept, axis))

    def constant(self, array: np.ndarray) -> ir.Value:
        """Add a constant to the graph."""
        name = f"folded_{len(self.graph.initializers)}"
        value = ir.Value(name=name, const_value=ir.tensor(np.ascontiguousarray(array), name=name))
        value.shape, value.dtype = ir.Shape(array.shape), ir.DataType.from_numpy(array.dtype)
        self.graph.register_initializer(value)
        return value

    def add(self, op: str, inputs: list[ir.Value | None], attributes: dict | None = None) -> ir.Value:
        """Add an operation to the graph."""
        node = ir.node(op, inputs, attributes or {})
        self.graph.insert_before(self.before, node)
        return node.outputs[0]

    def like(self, node: ir.Node, inputs: list[ir.Value | None], **changed: int) -> ir.Value:
        """Add a copy of an operation with other inputs."""
        kept = {name: attribute for name, attribute in node.attributes.items() if name not in changed}
        made = ir.Node(node.domain, node.op_type, inputs, [*kept.values(), *ir.convenience.convert_attributes(changed)])
        self.graph.insert_before(self.before, made)
        return made.outputs[0]


def _alike(selection: _Selection, node: ir.Node) -> ir.Value | None:
    first, *others = node.inputs
    assert first is not None
    return selection.like(node, [selection.or_gathered(first), *others])


def _pair(selection: _Selection, node: ir.Node) -> ir.Value | None:
    """Select on both sides; a side that is broadcast over the channels stays."""
    rank = _rank(node.outputs[0])
    sides: list[ir.Value | None] = []
    for side in node.inputs:
        if side is None or rank is None or _rank(side) is None:
            return None
        axis = CHANNELS - (rank - _rank(side))  # type: ignore[operator]
        if axis < 0 or side.shape[axis] == 1:  # type: ignore[index]
            sides.append(side)
        elif _array(side) is not None:
            sides.append(selection.rows(side, axis))
        elif axis == CHANNELS:
            sides.append(selection.or_gathered(side))
        else:
            return None
    return selection.like(node, sides)


def _convolution(selection: _Selection, node: ir.Node) -> ir.Value | None:
    """Remove filters; of a depthwise convolution also the input channels."""
    value, weight, *bias = node.inputs
    assert value is not None and weight is not None
    groups = _number(node, "group", 1)
    filters = selection.rows(weight)
    if filters is None or any(part is not None and _array(part) is None for part in bias):
        return None
    biases = [None if part is None else selection.rows(part) for part in bias]
    if groups == 1:
        return selection.like(node, [value, filters, *biases])
    array = _array(weight)
    assert array is not None
    if groups != len(array) or array.shape[1] != 1:
        return None
    return selection.like(node, [selection.or_gathered(value), filters, *biases], group=len(selection.kept))


def _normalisation(selection: _Selection, node: ir.Node) -> ir.Value | None:
    value, *parts = node.inputs
    assert value is not None
    smaller = [None if part is None else selection.rows(part) for part in parts]
    if any(part is None for part in smaller):
        return None
    return selection.like(node, [selection.or_gathered(value), *smaller])


def _linear(selection: _Selection, node: ir.Node) -> ir.Value | None:
    value, weight, *bias = node.inputs
    assert value is not None and weight is not None
    rows = selection.rows(weight, 0 if _number(node, "transB", 0) else 1)
    if rows is None:
        return None
    smaller = [part if part is None or _rank(part) == 0 else selection.rows(part, _rank(part) - 1) for part in bias]  # type: ignore[operator]
    if any(part is None for part in smaller):
        return None
    return selection.like(node, [value, rows, *smaller])


_RULES: dict[str, Callable[[_Selection, ir.Node], ir.Value | None]] = {
    **dict.fromkeys(PAIRS, _pair),
    "Conv": _convolution,
    "BatchNormalization": _normalisation,
    "Gemm": _linear,
}


def _read_packed(graph: ir.Graph, gather: ir.Node) -> None:
    """Let convolutions read packed channels, with only the columns of their filters that belong to them."""
    pad = gather.inputs[0].producer()  # type: ignore[union-attr]
    assert pad is not None
    places, packed = _selection(gather), pad.inputs[0]
    assert places is not None and packed is not None and packed.shape is not None
    kept = np.flatnonzero(places < packed.shape[CHANNELS])  # the others point at the appended zero
    for user, index in tuple(gather.outputs[0].uses()):
        if user.op_type != "Conv" or index != 0 or _number(user, "group", 1) != 1:
            continue
        weight = user.inputs[1]
        array = None if weight is None else _array(weight)
        if array is None:
            continue
        user.replace_input_with(1, _Selection(graph, kept, user).constant(np.take(array, kept, 1)))
        user.replace_input_with(0, packed)


def _is_unpacking(gather: ir.Node) -> bool:
    """Return whether a Gather puts packed channels back into their places.

    It selects each packed channel once and in order, and otherwise one appended zero. The same pattern in the user's
    network has the same meaning.
    """
    value, places = gather.inputs[0], _selection(gather)
    pad = None if value is None else value.producer()
    if places is None or pad is None or pad.op_type != "Pad" or not _appends_one_zero(pad):
        return False
    packed = pad.inputs[0]
    channels = None if packed is None or packed.shape is None else packed.shape[CHANNELS]
    return isinstance(channels, int) and np.array_equal(places[places != channels], np.arange(channels))


def _appends_one_zero(pad: ir.Node) -> bool:
    """Return whether a Pad appends one channel of zeros and nothing else."""
    rank = _rank(pad.inputs[0])
    pads, *others = [None if value is None else _array(value) for value in pad.inputs[1:]]
    mode = pad.attributes.get("mode")
    if rank is None or pads is None or len(pad.inputs) > 3 or (mode is not None and mode.as_string() != "constant"):
        return False
    if others and pad.inputs[2] is not None and (others[0] is None or others[0].any()):
        return False
    expected = np.zeros(2 * rank, pads.dtype)
    expected[rank + CHANNELS] = 1
    return np.array_equal(pads, expected)


def _selection(gather: ir.Node) -> np.ndarray | None:
    """Return the channels that a Gather selects; None if it does not select channels."""
    indices = gather.inputs[1]
    array = None if indices is None else _array(indices)
    rank = _rank(gather.inputs[0])
    if array is None or array.ndim != 1 or _number(gather, "axis", 0) != CHANNELS or rank is None:
        return None
    return array


def _array(value: ir.Value) -> np.ndarray | None:
    return None if value.const_value is None else value.const_value.numpy()


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _number(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())
