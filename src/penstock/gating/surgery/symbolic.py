"""Trace a network with symbols instead of tensors: torch.fx, with a tracer of our own.

Sizes are symbols too, so that the graph takes inputs of any size. A forward that decides by a size, collects its
outputs in an object, or hands them through decorators is out of its reach: see `recorder`.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from torch import fx, nn

from penstock.errors import CutError
from penstock.gating.surgery.graph import CONSTANT, Trace, attempt, finished, skeleton


def traced(model: nn.Module, leaves: set[str]) -> Trace:
    """Trace ``model`` in its present mode, or raise Untraceable for modules that should be leaves."""
    model = skeleton(model)  # networks that cache what they compute would keep proxies of this trace
    tracer = _Tracer(leaves)
    versions = {name: buffer._version for name, buffer in model.named_buffers()}
    tracer.graph = fx.Graph()  # until trace() makes its own
    run = partial(tracer.trace, model, concrete_args=optional_arguments(model))
    graph = attempt(tracer, "", model, run, run)
    attributes = [str(node.target) for node in graph.nodes if node.op == "get_attr"]
    constants = {name: getattr(model, name) for name in attributes if CONSTANT in name}
    return finished(model, Trace(graph, tracer.ends, frozenset(leaves), constants), versions)


def optional_arguments(model: nn.Module) -> dict[str, Any]:
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


def layer_by_layer(
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


class _Tracer(fx.Tracer):
    def __init__(self, leaves: set[str]):
        super().__init__()
        self.leaves = leaves
        self.ends: dict[fx.Node, list[str]] = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.leaves or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        path = self.path_of_module(m)
        call, stack = partial(super().call_module, m, forward, args, kwargs), self.module_stack.copy()

        def as_leaf() -> Any:
            self.module_stack = stack  # a forward that failed leaves its module there
            return call()

        run = call
        if type(m) is nn.TransformerEncoder and path not in self.leaves:
            run = partial(layer_by_layer, m, *args, **kwargs)
        out = attempt(self, path, m, run, as_leaf)
        if isinstance(out, fx.Proxy):
            self.ends.setdefault(out.node, []).append(path)
        return out
