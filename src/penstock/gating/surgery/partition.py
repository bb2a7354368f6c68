"""Cut a traced network into stages, each a module that can be called alone."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn

from penstock.gating.surgery.cuts import Place, Survey
from penstock.gating.surgery.graph import is_inplace

VIEWS = {
    "flatten", "view", "view_as", "reshape", "transpose", "permute", "movedim", "squeeze", "unsqueeze", "getitem",
    "chunk", "split", "unbind", "expand", "Flatten", "Unflatten", "Identity", "Dropout", "dropout",
}  # fmt: skip


def partition(model: nn.Module, surveyed: Survey, at: Sequence[Place]) -> tuple[list[fx.GraphModule], bool]:
    """Cut a network at places in the order of the network; stages share the modules of ``model``.

    Returns:
        The stages, and whether the input size is fixed to that of the example because a stage uses a size that it
        cannot get from its input.
    """
    nodes = list(surveyed.traced.graph.nodes)
    bounds = [0, *(place.index + 1 for place in at), len(nodes)]
    crossing: list[fx.Node | None] = [None, *(place.node for place in at), None]
    for name, constant in surveyed.traced.constants.items():
        setattr(model, name, constant)
    stages = [
        _StageBuilder(model, surveyed, nodes[start:end], entry, leave)
        for (start, end), (entry, leave) in zip(pairwise(bounds), pairwise(crossing), strict=True)
    ]
    modules = [fx.GraphModule(model, stage.graph, f"Stage{number}") for number, stage in enumerate(stages, start=1)]
    for name in surveyed.traced.constants:
        delattr(model, name)  # the stages have it now
    return modules, surveyed.traced.fixed_size or any(stage.fixed_size for stage in stages)


class _StageBuilder:
    """Builds the graph of one stage."""

    def __init__(
        self, model: nn.Module, surveyed: Survey, nodes: list[fx.Node], entry: fx.Node | None, leave: fx.Node | None
    ):
        self.measured = surveyed.measured
        self.graph = fx.Graph()
        self.known: dict[fx.Node, fx.Node] = {}
        self.fixed_size = False
        if entry is not None:
            self.entry = self.known[entry] = self.graph.placeholder(entry.name)
            if _changes_its_input(model, nodes, entry):  # the gate's backward pass needs the original
                self.entry = self.known[entry] = self.graph.call_method("clone", (self.entry,))
        for node in nodes:
            constant = node not in self.measured.reads and node.op != "output"
            if constant and not is_inplace(model, node):
                continue  # fetched where it is used
            self.known[node] = self.graph.node_copy(node, self.fetch)
        if leave is not None:
            self.graph.output(self.fetch(leave))
        self.graph.lint()

    def fetch(self, node: fx.Node) -> fx.Node:
        """Return the stage's own copy of a value from before the cut."""
        if node not in self.known:
            size = self.measured.size_of(node)
            if size is None:  # a parameter, or computed from parameters and sizes alone
                self.known[node] = self.graph.node_copy(node, self.fetch)
            else:
                self.known[node] = self._rebuilt(size)
        return self.known[node]

    def _rebuilt(self, size: Any) -> Any:
        """Compute a size from the batch size if it is a multiple of it; otherwise keep the number as a constant."""
        if isinstance(size, list):
            return self.graph.call_function(tuple, ([self._rebuilt(part) for part in size],))
        factor, follows_batch = size
        if not follows_batch:
            self.fixed_size = True
            return self.graph.call_function(int, (factor,))
        batch = self.graph.call_function(torch.Tensor.size, (self.entry, 0))
        return self.graph.call_function(operator.mul, (batch, factor))


def _changes_its_input(model: nn.Module, nodes: list[fx.Node], entry: fx.Node) -> bool:
    """Return whether an operation changes the input of a stage, or a view of it, in place."""
    same = {entry}
    for node in nodes:
        if same.isdisjoint(node.all_input_nodes):
            continue
        if is_inplace(model, node):
            return True
        name = type(model.get_submodule(str(node.target))).__name__ if node.op == "call_module" else node.target
        if (name if isinstance(name, str) else getattr(name, "__name__", "")) in VIEWS:
            same.add(node)
    return False
