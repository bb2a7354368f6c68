"""A network as a graph of its operations: what both ways of tracing share.

A submodule that cannot be traced becomes a leaf. So does one whose forward changes a buffer outside the graph or draws
random numbers: tracing would record the result of one call as a constant.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, fx, nn

CONSTANT = "_tensor_constant"
"""The name of a tensor that forward creates itself begins so."""


@dataclass(frozen=True)
class Trace:
    """A network's graph.

    Attributes:
        ends: the modules that end with a node, innermost first.
        leaves: the modules that cannot be traced and are not divided.
        constants: tensors that forward creates itself; the graph reads them from its module by these names.
        fixed_size: whether sizes other than the batch are those of the example.
    """

    graph: fx.Graph
    ends: dict[fx.Node, list[str]]
    leaves: frozenset[str]
    constants: dict[str, Tensor]
    fixed_size: bool = False


class Untraceable(Exception):
    """The forward of the modules with these paths cannot be traced; an empty path is the network itself."""


class RandomForward(ValueError):
    """A forward draws random numbers."""

    def __init__(self) -> None:
        super().__init__("it draws random numbers, which the graph would keep as constants")


class Tracer(Protocol):
    """What is being traced: the graph so far, the modules that end with a node, and the modules not to look into."""

    graph: fx.Graph
    ends: dict[fx.Node, list[str]]
    leaves: set[str]


def attempt(tracer: Tracer, path: str, module: nn.Module, run: Callable[[], Any], as_leaf: Callable[[], Any]) -> Any:
    """Run the forward of a module, which must neither fail nor draw random numbers; if it does, make it a leaf."""
    nodes = len(tracer.graph.nodes)
    with random_states_kept() as drawn:
        try:
            out = run()
            failure: Exception | None = RandomForward() if drawn() else None
        except Untraceable:
            raise
        except Exception as error:  # a user's forward may raise anything when it gets what is no tensor with data
            failure = error
    if failure is None:
        return out
    if path in ("", *tracer.leaves) or (isinstance(failure, RandomForward) and holds_blocks(module)):
        raise Untraceable(path) from failure
    for node in list(tracer.graph.nodes)[: nodes - 1 : -1]:
        tracer.graph.erase_node(node)
        tracer.ends.pop(node, None)
    tracer.leaves.add(path)
    return as_leaf()


@contextlib.contextmanager
def random_states_kept() -> Iterator[Callable[[], bool]]:
    """Restore the random generators of torch, Python and numpy; yield a function that tells whether they moved."""

    def states() -> tuple[Any, ...]:
        name, keys, *rest = np.random.get_state(legacy=True)
        return torch.get_rng_state().numpy().tobytes(), random.getstate(), (name, np.asarray(keys).tobytes(), *rest)

    before, numpys, torchs = states(), np.random.get_state(), torch.get_rng_state()
    try:
        yield lambda: states() != before
    finally:
        if states() != before:
            torch.set_rng_state(torchs)
            random.setstate(before[1])
            np.random.set_state(numpys)


def finished(model: nn.Module, trace: Trace, versions: dict[str, int]) -> Trace:
    """Return a trace without dead code, or raise for modules whose buffers have other versions than before it."""
    changed = [name for name, buffer in model.named_buffers() if buffer._version != versions[name]]
    if changed:
        cause = ValueError(f"it changes its buffer {changed[0]!r} outside the graph")
        raise Untraceable(*(name.rpartition(".")[0] for name in changed)) from cause
    fx.GraphModule(model, trace.graph)  # eliminate_dead_code needs a graph with an owner
    trace.graph.eliminate_dead_code(lambda node: node.is_impure() or is_inplace(model, node))
    read = {node.target for node in trace.graph.nodes if node.op == "get_attr"}
    return replace(trace, constants={name: constant for name, constant in trace.constants.items() if name in read})


def owner(node: fx.Node) -> str:
    """Return the path of the module whose forward made this node."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    if node.op == "call_module":
        paths = paths[:-1]
    return paths[-1] if paths else ""


def skeleton(model: nn.Module) -> nn.Module:
    """Copy a network's modules and buffers but not its parameters, for a run that may leave something in them."""
    return copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})


def is_inplace(model: nn.Module, node: fx.Node) -> bool:
    """Return whether an operation changes its input in place."""
    if node.op == "call_module":
        return bool(getattr(model.get_submodule(str(node.target)), "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).startswith("__")
    if node.op == "call_function":
        name = getattr(node.target, "__name__", "")
        inplace = name.endswith("_") or name in ("iadd", "imul", "isub", "setitem")
        return inplace or bool(node.kwargs.get("inplace", False))
    return False


def is_block(path: str, module: nn.Module) -> bool:
    """Return whether a module is a block of layers: one of a numbered list of modules with parts of their own."""
    return path.rpartition(".")[2].isdigit() and any(True for _ in module.children())


def holds_blocks(module: nn.Module) -> bool:
    """Return whether a module contains blocks of layers; as a leaf it would take all cuts between them with it."""
    return any(is_block(path, part) for path, part in module.named_modules())
