"""Channels that a mask drops are not computed at all.

A mask of channels ends in the graph as a selection: Gather along the channels, behind the stage's last operation. Each
rule below moves it one operation up, towards the input; where it meets a convolution it becomes a smaller convolution.
In the next stage the dropped channels come back as zeros, and a convolution that reads zeros reads nothing: it loses
those columns of its filters. A value that something else reads too is left whole.
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
"""Operations that treat each channel by itself, and all alike."""

PAIRS = frozenset(("Add", "Div", "Max", "Min", "Mul", "Sub"))
"""Operations on two values, channel by channel."""


def prune_channels(graph: ir.Model) -> ir.Model:
    """Leave out what dropped channels would compute; the graph is changed in place."""
    for node in [node for node in graph.graph if node.op_type == "Gather" and _is_unpacking(node)]:
        _read_less(graph.graph, node)
    for node in [node for node in graph.graph if node.op_type == "Gather" and not _is_unpacking(node)]:
        _compute_less(graph.graph, node)
    return graph


def _compute_less(graph: ir.Graph, gather: ir.Node) -> None:
    """Move a selection of channels up as far as it goes."""
    value, kept = gather.inputs[0], _selection(gather)
    if value is None or kept is None:
        return
    less = _Selection(graph, kept, gather).of(value)
    if less is not None:
        name = gather.outputs[0].name
        gather.outputs[0].replace_all_uses_with(less, replace_graph_outputs=True)
        graph.remove(gather, safe=True)
        less.name = name


class _Selection:
    """Some channels of values, computed without the others.

    Args:
        kept: which.
        before: new operations stand before this one; the graph is in order there.
    """

    def __init__(self, graph: ir.Graph, kept: np.ndarray, before: ir.Node):
        self.graph, self.kept, self.before = graph, kept, before

    def of(self, value: ir.Value) -> ir.Value | None:
        """Return the channels of a value; None where it must be computed whole."""
        node = value.producer()
        if node is None or len(value.uses()) > 1 or value.is_graph_output():
            return None
        rule = _RULES.get(node.op_type, _alike if node.op_type in ALIKE else None)
        return None if rule is None else rule(self, node)

    def or_gathered(self, value: ir.Value) -> ir.Value:
        """Return the channels of a value, picked out of it where it must be computed whole."""
        less = self.of(value)
        return self.add("Gather", [value, self.constant(self.kept)], {"axis": CHANNELS}) if less is None else less

    def rows(self, value: ir.Value, axis: int = 0) -> ir.Value | None:
        """Return the channels of a constant; None if it is none."""
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
        """Add an operation as another one is, with other inputs."""
        kept = {name: attribute for name, attribute in node.attributes.items() if name not in changed}
        made = ir.Node(node.domain, node.op_type, inputs, [*kept.values(), *ir.convenience.convert_attributes(changed)])
        self.graph.insert_before(self.before, made)
        return made.outputs[0]


def _alike(selection: _Selection, node: ir.Node) -> ir.Value | None:
    first, *others = node.inputs
    assert first is not None
    return selection.like(node, [selection.or_gathered(first), *others])


def _pair(selection: _Selection, node: ir.Node) -> ir.Value | None:
    """Both sides lose the channels; one that is the same for all of them stays."""
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
    """Lose filters. Where each channel has a filter of its own, its input loses the channels too."""
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


def _read_less(graph: ir.Graph, gather: ir.Node) -> None:
    """Let convolutions read packed channels, with the columns of those alone."""
    pad = gather.inputs[0].producer()  # type: ignore[union-attr]
    assert pad is not None
    places, packed = _selection(gather), pad.inputs[0]
    assert places is not None and packed is not None and packed.shape is not None
    kept = np.flatnonzero(places < packed.shape[CHANNELS])  # the others are the zero behind them
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
    """Say whether a selection puts packed channels back to their places.

    It picks from them and from one zero behind them, each of them once and in order. A network's own padding and
    picking may look alike; then this holds of it too.
    """
    value, places = gather.inputs[0], _selection(gather)
    pad = None if value is None else value.producer()
    if places is None or pad is None or pad.op_type != "Pad" or not _is_one_zero_behind(pad):
        return False
    packed = pad.inputs[0]
    channels = None if packed is None or packed.shape is None else packed.shape[CHANNELS]
    return isinstance(channels, int) and np.array_equal(places[places != channels], np.arange(channels))


def _is_one_zero_behind(pad: ir.Node) -> bool:
    """Say whether a Pad adds one channel of zeros, the last, and nothing else."""
    rank = _rank(pad.inputs[0])
    pads, *others = [None if value is None else _array(value) for value in pad.inputs[1:]]
    mode = pad.attributes.get("mode")
    if rank is None or pads is None or len(pad.inputs) > 3 or (mode is not None and mode.as_string() != "constant"):
        return False
    if others and pad.inputs[2] is not None and (others[0] is None or others[0].any()):
        return False
    wanted = np.zeros(2 * rank, pads.dtype)
    wanted[rank + CHANNELS] = 1
    return np.array_equal(pads, wanted)


def _selection(gather: ir.Node) -> np.ndarray | None:
    """Return the channels that a Gather picks; None if it picks something else."""
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
