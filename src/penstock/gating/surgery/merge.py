"""Merge the graphs of a network in training and in evaluation into one that is correct in both.

What is True in training and False in evaluation becomes ``self.training``, so that
``F.dropout(x, training=self.training)`` can still be switched. Recorded graphs are of two batch sizes as well: a number
that is a multiple of both becomes that multiple of the batch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import torch
from torch import fx

from penstock.gating.surgery.graph import Trace, Untraceable, owner

BATCH, OTHER_BATCH = 2, 3
"""A network is recorded and measured at two batch sizes, to see which sizes depend on the batch."""


def merge(training: Trace, evaluation: Trace) -> Trace:
    """Make ``training`` correct in both modes and for any batch, or raise for a module that differs."""
    merger = _Merger(training, evaluation)
    left, right = list(training.graph.nodes), list(evaluation.graph.nodes)
    merger.number = {node: i for nodes in (left, right) for i, node in enumerate(nodes)}
    for a, b in zip_longest(left, right):
        if a is None or b is None or (a.op, merger.target(a, b)) != (b.op, b.target):
            raise _different(a or b)
        a.args, a.kwargs = merger.merged(a.args, b.args, a), merger.merged(dict(a.kwargs), dict(b.kwargs), a)
    for name in training.constants:
        merger.merge_constant(name, [node for node in left if node.op == "get_attr" and node.target == name])
    return training


def _different(node: fx.Node, what: str = "its operations in training differ from those in evaluation") -> Untraceable:
    error = Untraceable(owner(node))
    error.__cause__ = ValueError(what)
    return error


class _Merger:
    def __init__(self, training: Trace, evaluation: Trace):
        self.graph, self.any_size = training.graph, not training.fixed_size
        self.mine, self.others = training.constants, evaluation.constants
        self.pairs: dict[str, str] = {}
        self.inputs = [node for node in training.graph.nodes if node.op == "placeholder"]
        self.number: dict[fx.Node, int] = {}
        self.added: dict[Any, fx.Node] = {}

    def target(self, a: fx.Node, b: fx.Node) -> Any:
        """Return what ``b`` should call if it does what ``a`` does; constants may have other numbers."""
        if a.target in self.mine and b.target in self.others:
            return self.pairs.setdefault(str(a.target), str(b.target))
        return a.target

    def merged(self, a: Any, b: Any, node: fx.Node) -> Any:
        """Return the argument of ``node`` that is ``a`` in training and ``b`` in evaluation."""
        if isinstance(a, fx.Node) and isinstance(b, fx.Node) and self.number[a] == self.number[b]:
            return a
        if isinstance(a, (tuple, list)) and type(a) is type(b) and len(a) == len(b):
            return type(a)(self.merged(x, y, node) for x, y in zip(a, b, strict=True))
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            return {key: self.merged(value, b[key], node) for key, value in a.items()}
        if isinstance(a, slice) and isinstance(b, slice):
            return slice(*(self.merged(getattr(a, one), getattr(b, one), node) for one in ("start", "stop", "step")))
        if isinstance(a, fx.Node) or isinstance(b, fx.Node):
            raise _different(node)
        return a if a == b and type(a) is type(b) else self._number(a, b, node)

    def merge_constant(self, name: str, reads: list[fx.Node]) -> None:
        """Keep one sample of a constant that is the same for each sample of the batch, and repeat it."""
        a, b = self.mine[name], self.others[self.pairs[name]]
        if a.shape == b.shape and torch.equal(a, b):
            return
        sizes = list(zip(a.shape, b.shape, strict=False))
        axis = sizes.index((BATCH, OTHER_BATCH)) if (BATCH, OTHER_BATCH) in sizes else None
        if self.any_size or axis is None or a.ndim != b.ndim:
            raise _different(reads[0])
        sample = a.narrow(axis, 0, 1)
        if not all(torch.equal(sample.expand(one.shape), one) for one in (a, b)):
            raise _different(reads[0], "it makes a tensor that differs from sample to sample, such as arange(batch)")
        self.mine[name] = sample.clone()
        shape = [self._batch(1) if i == axis else -1 for i in range(a.ndim)]
        for node in reads:
            with self.graph.inserting_after(node):
                rows = self.graph.call_method("expand", (node, *shape))
            node.replace_all_uses_with(rows, lambda user, rows=rows: user is not rows)  # type: ignore[misc]

    def _number(self, a: Any, b: Any, node: fx.Node) -> fx.Node:
        if a is True and b is False:
            return self._switch()
        if type(a) is float and b == 0:  # the share that F.scaled_dot_product_attention drops
            switch = self._switch()
            return self._first(a, lambda: self.graph.call_function(operator.mul, (a, switch)))
        if not self.any_size and type(a) is int and type(b) is int and a * OTHER_BATCH == b * BATCH:
            return self._batch(a // BATCH)
        raise _different(node)

    def _switch(self) -> fx.Node:
        return self._first("training", lambda: self.graph.create_node("get_attr", "training"))

    def _batch(self, factor: int) -> fx.Node:
        size = self._first("batch", lambda: self.graph.call_method("size", (self.inputs[0], 0)))
        if factor == 1:
            return size
        return self._first(factor, lambda: self.graph.call_function(operator.mul, (size, factor)))

    def _first(self, key: Any, create: Callable[[], fx.Node]) -> fx.Node:
        """Return a node behind the inputs and the nodes made so far, made when it is first needed."""
        if key not in self.added:
            with self.graph.inserting_after([*self.inputs, *self.added.values()][-1]):
                self.added[key] = create()
        return self.added[key]
