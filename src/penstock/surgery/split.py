"""Cut a traced network into stages, each a module that can be called alone."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from penstock.surgery.measure import Measured


def split(model: nn.Module, graph: fx.Graph, measured: Measured, at: Sequence[fx.Node]) -> list[fx.GraphModule]:
    """Cut ``graph`` behind each node of ``at``; stages share the modules of ``model``, copying none.

    Args:
        at: nodes whose value alone crosses their place, in the order of the graph.
    """
    nodes = list(graph.nodes)
    ends = [*(nodes.index(node) for node in at), len(nodes) - 1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    received = [None, *at]
    return [
        _stage(model, measured, nodes[start : end + 1], entry, leave, f"Stage{number}")
        for number, (start, end, entry, leave) in enumerate(
            zip(starts, ends, received, [*at, None], strict=True), start=1
        )
    ]


def _stage(
    model: nn.Module,
    measured: Measured,
    nodes: list[fx.Node],
    entry: fx.Node | None,
    leave: fx.Node | None,
    name: str,
) -> fx.GraphModule:
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    if entry is not None:
        known[entry] = graph.placeholder(entry.name)
        if any(_is_inplace(model, user) for user in entry.users):  # the gate still needs what it saw
            known[entry] = graph.call_method("clone", (known[entry],))

    def fetch(node: fx.Node) -> fx.Node:
        """Return the stage's own copy of a value from before the cut."""
        if node not in known:
            size = measured.size_of(measured.values[node], measured.others[node]) if node in measured.depends else None
            if size is None:  # a parameter, or computed from parameters alone
                known[node] = graph.node_copy(node, fetch)
            else:
                known[node] = _rebuild(graph, size, known[entry] if entry is not None else None)
        return known[node]

    for node in nodes:
        if node.op == "get_attr" or (node not in measured.depends and node.op != "output"):
            continue  # fetched where it is used
        if entry is None or node.op != "placeholder":
            known[node] = graph.node_copy(node, fetch)
    if leave is not None:
        graph.output(known[leave])
    graph.lint()
    return fx.GraphModule(model, graph, name)


def _rebuild(graph: fx.Graph, size: Any, x: fx.Node | None) -> Any:
    """Read a size off the tensor that crossed: its batch where the size follows the batch, else the number itself."""
    if isinstance(size, list):
        return graph.call_function(tuple, ([_rebuild(graph, part, x) for part in size],))
    factor, follows_batch = size
    if not follows_batch:
        return graph.call_function(int, (factor,))
    batch = graph.call_function(torch.Tensor.size, (x, 0))
    return graph.call_function(operator.mul, (batch, factor))


def _is_inplace(model: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_")
    return bool(node.kwargs.get("inplace", False)) or getattr(node.target, "__name__", "").endswith("_")
