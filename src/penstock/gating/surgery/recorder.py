"""Trace a network by recording what its forward calls while it runs on a batch that has a shape and no data.

The second way, for networks that symbols do not get through: here sizes are numbers, and outputs may be collected in
objects, so a forward may decide by whatever does not depend on the data. Tensors that depend on the input are fake; all
others are real, and what forward computes from nothing (a mask, positions) becomes a constant. The graph is of one
batch size, until it is merged with one of another.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode

from penstock.gating.surgery.graph import CONSTANT, Trace, attempt, finished, random_states_kept, skeleton
from penstock.gating.surgery.symbolic import layer_by_layer


def recorded(model: nn.Module, leaves: set[str], still: set[str], example: Tensor, batch: int) -> Trace:
    """Record ``model`` in its present mode, or raise Untraceable for modules that should be leaves.

    Args:
        model: the network.
        leaves: the modules not to look into.
        still: the modules whose own forward runs as in evaluation.
        example: a batch as the network takes it; only its shape and dtype matter.
        batch: the batch size to record with.
    """
    model = skeleton(model)  # networks that cache what they compute would keep tensors of this run
    for path in still:
        model.get_submodule(path).training = False
    recorder = _Recorder(model, leaves)
    x = FakeTensorMode(allow_non_fake_inputs=True).from_tensor(example.new_empty((batch, *example.shape[1:])))
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The .grad attribute")  # torch itself reads it
        recorder.run(model, x)
    for name, constant in recorder.constants.items():
        setattr(model, name, constant)
    trace = Trace(recorder.graph, recorder.ends, frozenset(leaves), recorder.constants, fixed_size=True)
    return finished(model, trace, recorder.versions)


def logits_of(out: Any) -> Any:
    """Return the logits of what a network returns: itself, or its ``logits`` if it is an object that has them."""
    return getattr(out, "logits", out)


class _Recorder(TorchFunctionMode):
    """Records calls of functions, and of modules that are leaves, as nodes of a graph."""

    def __init__(self, model: nn.Module, leaves: set[str]):
        super().__init__()
        self.leaves = leaves
        self.graph = fx.Graph()
        self.ends: dict[fx.Node, list[str]] = {}
        self.constants: dict[str, Tensor] = {}
        self.paths = {module: path for path, module in model.named_modules()}
        self.names = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self.known: dict[int, tuple[Tensor, fx.Node]] = {}  # with the tensor, so that no other gets its id
        self.versions = {name: buffer._version for name, buffer in model.named_buffers()}
        self.stack: list[str] = []
        self.inside_leaf = False

    def run(self, model: nn.Module, x: Tensor) -> None:
        """Record one call of the network."""
        self.known[id(x)] = x, self.graph.placeholder("x")
        call = nn.Module.__call__

        def recorded_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self.inside_leaf or module not in self.paths:
                return call(module, *args, **kwargs)
            return self.call_module(module, partial(call, module), args, kwargs)

        with patch.object(nn.Module, "__call__", recorded_call), self:
            out = model(x)
        self.graph.output(self.argument(logits_of(out)))

    def call_module(self, module: nn.Module, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record what the forward of a module calls, or one call of the module if it is a leaf."""
        path = self.paths[module]
        self.stack.append(path)
        as_leaf = partial(self.call_leaf, module, call)
        if type(module) is nn.TransformerEncoder and path not in self.leaves:
            call = partial(layer_by_layer, module)
        elif path in self.leaves or fx.Tracer().is_leaf_module(module, path):
            call = as_leaf
        out = attempt(self, path, module, partial(call, *args, **kwargs), partial(as_leaf, *args, **kwargs))
        self.stack.pop()
        first = out[0] if isinstance(out, (tuple, list, dict)) and out else out
        if id(first) in self.known:
            self.ends.setdefault(self.known[id(first)][1], []).append(path)
        return out

    def call_leaf(self, module: nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.inside_leaf = True
        try:
            with random_states_kept():
                out = call(*args, **kwargs)
        finally:
            self.inside_leaf = False
        path = self.paths[module]
        for name, buffer in module.named_buffers():  # a leaf may count in its buffers: its stage will too
            self.versions[f"{path}.{name}"] = buffer._version
        return self.record(("call_module", path, args, kwargs), out)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside_leaf:
            return func(*args, **kwargs)
        tensors, name = _tensors((args, kwargs)), getattr(func, "__name__", "")
        depends = any(isinstance(t, FakeTensor) or id(t) in self.known or id(t) in self.names for t in tensors)
        if name in _READS and any(id(t) in self.known or t.requires_grad for t in tensors):
            raise ValueError(_READ)
        if depends and _writes(name) and not any(id(t) in (*self.known, *self.names) for t in _tensors(args[0])):
            raise ValueError("it writes what depends on the input into a tensor that does not")
        try:
            out = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError(_READ) from error
        if not depends or not (_tensors(out) or _writes(name)) or name == "__set__":
            return out
        return self.record(_call(func, name, args, kwargs), out)

    def record(self, call: tuple[str, Any, Any, Any], out: Any) -> Any:
        """Add a node for a call and what it returned; return that, with new names for what was passed in."""
        op, target, args, kwargs = call
        given = _tensors((args, kwargs))
        if not torch.is_grad_enabled() and any(t.requires_grad for t in given):
            raise ValueError("it computes without gradients, which its stages would compute")
        node = self.node(op, target, self.argument(tuple(args)), self.argument(dict(kwargs)))
        if any(t is one for t in _tensors(out) for one in given):  # such as dropout's, in evaluation alone
            out = fx.node.map_aggregate(out, lambda t: torch.ops.aten.alias(t) if isinstance(t, Tensor) else t)
        self.assign(out, node)
        return out

    def node(self, op: str, target: Any, args: Any = (), kwargs: Any = None) -> fx.Node:
        """Add a node that knows the modules it belongs to."""
        node = self.graph.create_node(op, target, args, kwargs)
        node.meta["nn_module_stack"] = {path: (path, None) for path in self.stack}
        return node

    def assign(self, out: Any, node: fx.Node) -> None:
        """Remember which node computed a tensor, or the tensors of a tuple."""
        if isinstance(out, Tensor):
            self.known[id(out)] = out, node
        elif isinstance(out, (tuple, list, dict)):
            for key, item in out.items() if isinstance(out, dict) else enumerate(out):
                if _tensors(item):
                    self.assign(item, self.node("call_function", operator.getitem, (node, key)))

    def argument(self, value: Any) -> Any:
        """Return a value as an argument of a node."""
        if isinstance(value, Tensor):
            return self.node_of(value)
        if isinstance(value, (tuple, list)):
            items = [self.argument(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {key: self.argument(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*(self.argument(item) for item in (value.start, value.stop, value.step)))
        if value is None or value is ... or isinstance(value, _PLAIN):
            return value
        if isinstance(value, Integral):
            return int(value)
        if isinstance(value, Real):
            return float(value)
        raise ValueError(f"it passes on a {type(value).__name__}, which a graph cannot hold")

    def node_of(self, tensor: Tensor) -> fx.Node:
        if id(tensor) in self.known:
            return self.known[id(tensor)][1]
        if id(tensor) in self.names:
            return self.node("get_attr", self.names[id(tensor)])
        if isinstance(tensor, FakeTensor):
            raise ValueError("it computes with operations that are not torch's own")
        name = f"{CONSTANT}{len(self.constants)}"
        self.constants[name] = tensor.detach().clone()  # forward may change it later
        return self.node("get_attr", name)


_PLAIN = (bool, str, complex, torch.dtype, torch.device, torch.layout, torch.memory_format)
_READS = ("__bool__", "__int__", "__float__", "__index__", "__array__", "item", "tolist", "numpy")
_READ = "it reads the values of a tensor, to decide or to compute with them outside torch"


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors in a value."""
    found: list[Tensor] = []
    fx.node.map_aggregate(value, lambda one: found.append(one) if isinstance(one, Tensor) else None)
    return found


def _writes(name: str) -> bool:
    """Return whether a function of this name changes its first argument."""
    if name.startswith("__"):
        return name in ("__setitem__", "__set__") or (name.startswith("__i") and hasattr(operator, name))
    return name.endswith("_")


def _call(func: Any, name: str, args: Any, kwargs: Any) -> tuple[str, Any, Any, Any]:
    """Return a call as an operation of a graph: its kind, its target and its arguments."""
    if name == "__get__":  # an attribute such as x.T
        return "call_function", getattr, (args[0], func.__self__.__name__), {}
    if name.startswith("__r") and hasattr(operator, f"__{name[3:]}"):
        return "call_function", getattr(operator, f"__{name[3:]}"), args[::-1], kwargs
    if name.startswith("__") and hasattr(operator, name):
        return "call_function", getattr(operator, name), args, kwargs
    if getattr(Tensor, name, None) is func:
        return "call_method", name, args, kwargs
    return "call_function", func, args, kwargs
