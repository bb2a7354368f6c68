"""Turn a network into a graph of its operations that is correct in training and in evaluation.

Three things that plain symbolic tracing does not do:

* a submodule that cannot be traced becomes a leaf automatically. So does one whose forward changes a buffer outside
  the graph or draws random numbers: tracing would record the result of one call as a constant;
* ``F.dropout(x, training=self.training)`` can still be switched: the network is traced in both modes, and a constant
  that is True in one and False in the other becomes ``self.training``; a submodule with other operations in one mode
  becomes a leaf;
* each node records the modules that end with it, so that a place in the graph can be named after a module.
"""

from __future__ import annotations

import copy
import inspect
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from penstock.errors import CutError
from penstock.gating.temporary_mode import temporary_mode


@dataclass(frozen=True)
class Trace:
    """A network's graph.

    Attributes:
        ends: the modules that end with a node, innermost first.
        leaves: the modules that cannot be traced and are not divided.
        constants: tensors that forward creates itself; the graph reads them from its module by these names.
    """

    graph: fx.Graph
    ends: dict[fx.Node, list[str]]
    leaves: frozenset[str]
    constants: dict[str, Tensor]


def trace(model: nn.Module) -> Trace:
    """Trace ``model`` without changing it."""
    if model._forward_hooks or model._forward_pre_hooks:
        raise CutError(
            f"{type(model).__name__} has forward hooks, which its stages would lose: remove them, or wrap the network "
            "in a module that does the same."
        )
    leaves: set[str] = set()
    while True:
        try:
            with temporary_mode(model, training=True):
                training = _traced(model, leaves)
            with temporary_mode(model, training=False):
                evaluation = _traced(model, leaves)
            _merge(training.graph, evaluation.graph)
        except _Untraceable as failure:
            if "" in failure.args:
                raise CutError(_explain(model, failure)) from failure.__cause__
            leaves.update(failure.args)
        else:
            return training


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


def _traced(model: nn.Module, leaves: set[str]) -> Trace:
    model = skeleton(model)  # networks that cache what they compute would keep proxies of this trace
    tracer = _Tracer(leaves)
    versions = {name: buffer._version for name, buffer in model.named_buffers()}
    with torch.random.fork_rng(devices=()):
        graph = tracer.attempt("", lambda: tracer.trace(model, concrete_args=_defaults(model)))
    changed = [name for name, buffer in model.named_buffers() if buffer._version != versions[name]]
    if changed:
        cause = ValueError(f"it changes its buffer {changed[0]!r} outside the graph")
        raise _Untraceable(*(name.rpartition(".")[0] for name in changed)) from cause
    fx.GraphModule(model, graph)  # eliminate_dead_code needs a graph with an owner
    graph.eliminate_dead_code(lambda node: node.is_impure() or is_inplace(model, node))
    attributes = [str(node.target) for node in graph.nodes if node.op == "get_attr"]
    constants = {name: getattr(model, name) for name in attributes if "_tensor_constant" in name}
    return Trace(graph, tracer.ends, frozenset(leaves), constants)


def _defaults(model: nn.Module) -> dict[str, Any]:
    """Return the optional arguments of forward with their defaults, which the graph keeps."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p.name for p in named if p.default is p.empty]
    if len(required) > 1:
        raise CutError(
            f"{type(model).__name__}.forward must take one input, got {len(required)} ({', '.join(required)}). Wrap it "
            "in a module that takes one tensor."
        )
    return {p.name: p.default for p in named[1:] if p.default is not p.empty}


class _Untraceable(Exception):
    """The forward of the modules with these paths cannot be traced; an empty path is the network itself."""


class _Tracer(fx.Tracer):
    def __init__(self, leaves: set[str]):
        super().__init__()
        self.leaves = leaves
        self.ends: dict[fx.Node, list[str]] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.leaves or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        path = self.path_of_module(m)
        if type(m) is nn.TransformerEncoder and path not in self.leaves:
            out = self.attempt(path, partial(_layer_by_layer, m, *args, **kwargs))
        else:
            out = self.attempt(path, partial(super().call_module, m, forward, args, kwargs))
        if isinstance(out, fx.Proxy):
            self.ends.setdefault(out.node, []).append(path)
        return out

    def attempt(self, path: str, run: Callable[[], Any]) -> Any:
        """Run the forward of the module at ``path``, which must neither fail nor draw random numbers."""
        before = _random_states()
        try:
            out = run()
        except _Untraceable:
            raise
        except Exception as error:  # a user's forward may raise anything when it gets a proxy
            raise _Untraceable(path) from error
        if _random_states() != before:
            raise _Untraceable(path) from ValueError("it draws random numbers, which the graph would keep as constants")
        return out


def _random_states() -> tuple[Any, ...]:
    """Return the states of the random generators of torch, Python and numpy."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().tolist(), random.getstate(), name, np.asarray(keys).tobytes(), *rest


def _layer_by_layer(
    encoder: nn.TransformerEncoder,
    src: Any,
    mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool | None = None,
) -> Any:
    """Compute ``nn.TransformerEncoder.forward`` without its fast paths, which look at the data."""
    for layer in encoder.layers:
        src = layer(src, mask, src_key_padding_mask, bool(is_causal))
    return src if encoder.norm is None else encoder.norm(src)


def _merge(training: fx.Graph, evaluation: fx.Graph) -> None:
    """Make the graph ``training`` correct in both modes, or raise for the module that differs in evaluation."""
    left, right = list(training.nodes), list(evaluation.nodes)
    number = {node: i for i, node in enumerate(right)} | {node: i for i, node in enumerate(left)}
    switch: fx.Node | None = None
    different = ValueError("its operations in training differ from those in evaluation")

    def merge(a: Any, b: Any, node: fx.Node) -> Any:
        nonlocal switch
        if isinstance(a, fx.Node) and isinstance(b, fx.Node) and number[a] == number[b]:
            return a
        if a is True and b is False:
            if switch is None:
                with training.inserting_before(left[0]):
                    switch = training.create_node("get_attr", "training")
            return switch
        if isinstance(a, (tuple, list)) and type(a) is type(b) and len(a) == len(b):
            return type(a)(merge(x, y, node) for x, y in zip(a, b, strict=True))
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            return {key: merge(value, b[key], node) for key, value in a.items()}
        if isinstance(a, fx.Node) or isinstance(b, fx.Node) or a != b:
            raise _Untraceable(owner(node)) from different
        return a

    for a, b in zip_longest(left, right):
        if a is None or b is None or (a.op, a.target) != (b.op, b.target):
            raise _Untraceable(owner(a or b)) from different
        a.args, a.kwargs = merge(tuple(a.args), tuple(b.args), a), merge(dict(a.kwargs), dict(b.kwargs), a)


def _explain(model: nn.Module, failure: _Untraceable) -> str:
    cause = failure.__cause__
    if isinstance(cause, CutError):
        return str(cause)
    frames = traceback.extract_tb(cause.__traceback__ if cause else None)
    where = "".join([f" at {frame.line!r}" for frame in frames if frame.name == "forward"][-1:])
    return (
        f"{type(model).__name__}.forward cannot be traced{where}: {cause}. If it depends on the data, divide it "
        "yourself and pass its stages as a list: gate([stage1, stage2, ...], example)."
    )
