"""Measure a network: the shape and the multiply-accumulates of each operation, without computing anything.

The graph is run on tensors that have a shape and no data, so that measuring a large network takes no memory.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from penstock.errors import CutError, ShapeError
from penstock.gating.surgery.graph import Trace, is_inplace, skeleton
from penstock.gating.surgery.merge import BATCH, OTHER_BATCH
from penstock.gating.temporary_mode import temporary_mode


@dataclass(frozen=True)
class Measured:
    """What is known of each node.

    Attributes:
        values, others: its value at both batch sizes.
        macs: its multiply-accumulates per sample.
        reads: the nodes that depend on the input, if only on its size.
        depends: those that a later stage cannot compute again from parameters and the batch size.
        sizes: the nodes that are sizes of such tensors.
        classes: of the network.
    """

    values: dict[fx.Node, Any]
    others: dict[fx.Node, Any]
    macs: dict[fx.Node, int]
    reads: set[fx.Node]
    depends: set[fx.Node]
    sizes: set[fx.Node]
    classes: int

    def batch_first(self, node: fx.Node) -> bool:
        """Return whether the first axis of a tensor, and no other, is the batch."""
        one, two = self.values[node].shape, self.others[node].shape
        return len(one) == len(two) and (one[0], two[0]) == (BATCH, OTHER_BATCH) and one[1:] == two[1:]

    def must_cross(self, node: fx.Node) -> bool:
        """Return whether a later stage can only get this value by receiving it."""
        return node in self.depends and node.op != "output"

    def size_of(self, node: fx.Node) -> Any:
        """Return a size as (factor, times batch?), a list of those, or None if the value is not a size."""
        return self._size(self.values[node], self.others[node]) if node in self.sizes else None

    def _size(self, value: Any, other: Any) -> Any:
        if isinstance(value, (tuple, list)):
            parts = [self._size(a, b) for a, b in zip(value, other, strict=True)]
            return None if any(part is None for part in parts) else parts
        if isinstance(value, int) and not isinstance(value, bool):
            if value == other:
                return value, False
            if value % BATCH == 0 and value // BATCH * OTHER_BATCH == other:
                return value // BATCH, True
        return None


def measure(model: nn.Module, traced: Trace, example: Tensor) -> Measured:
    """Run the graph of ``model`` on shapes alone, at two batch sizes, and count its MACs."""
    graph = traced.graph
    bare = skeleton(model)  # modules that cache what they compute do it in this copy
    for name, constant in traced.constants.items():
        setattr(bare, name, constant)
    module = fx.GraphModule(bare, graph)
    try:
        values, macs = _run(module, example, BATCH)
        others, _ = _run(module, example, OTHER_BATCH)
        _check_dtype(module, example, macs)
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ShapeError(
            f"expected an example batch that {type(model).__name__} accepts, at any batch size, got "
            f"{tuple(example.shape)}, {example.dtype}: {reason}"
        ) from error
    reads = _reached(graph, {node for node in graph.nodes if node.op == "placeholder"}, set())
    sizes = _sizes(graph) & reads
    measured = Measured(values, others, macs, reads, set(), sizes, _classes(model, graph, values))
    plain_sizes = {node for node in sizes if measured.size_of(node) is not None}
    measured.depends.update(_reached(graph, _origins(bare, graph, reads), plain_sizes))
    return measured


def _reached(graph: fx.Graph, origins: set[fx.Node], barred: set[fx.Node]) -> set[fx.Node]:
    """Return the nodes computed from ``origins``, those included, other than through barred ones."""
    reached: set[fx.Node] = set()
    for node in graph.nodes:
        if node in origins or (node not in barred and not reached.isdisjoint(node.all_input_nodes)):
            reached.add(node)
    return reached


def _origins(model: nn.Module, graph: fx.Graph, reads: set[fx.Node]) -> set[fx.Node]:
    """Return what a later stage cannot compute again: the input, what is drawn, and what is changed in place."""
    origins = {node for node in graph.nodes if node.op == "placeholder"}
    for node in graph.nodes:
        target = model.get_submodule(node.target) if node.op == "call_module" else node.target
        if (
            "dropout"
            in (target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)).lower()
        ):
            origins.add(node)
        changed = list(node.all_input_nodes[:1]) if is_inplace(model, node) else []
        while changed:
            one = changed.pop()
            if one in reads and one not in origins:
                origins.add(one)
                changed.extend(one.all_input_nodes)
    return origins


def measure_stages(stages: list[nn.Module], example: Tensor) -> tuple[list[tuple[int, ...]], list[int]]:
    """Run stages one after another on the example itself; return their output shapes and MACs per sample."""
    check_example(example)
    shapes, macs, x = [], [], example
    for number, stage in enumerate(stages, start=1):
        with torch.no_grad(), temporary_mode(stage, training=False), _countable() as counter:
            try:
                x = stage(x)
            except Exception as error:
                raise ShapeError(f"stage {number} does not accept an input of {tuple(x.shape)}: {error}") from error
        if not isinstance(x, Tensor) or x.ndim < 2 or len(x) != len(example):
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError(f"stage {number} must return a tensor ({len(example)}, ...), got {found}.")
        shapes.append(tuple(x.shape[1:]))
        macs.append(counter.get_total_flops() // 2 // len(example))
    return shapes, macs


def check_example(example: Any) -> None:
    """Raise a ShapeError unless ``example`` is a batch of samples."""
    found = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
    if not isinstance(example, Tensor) or example.ndim < 2 or len(example) < 1:
        raise ShapeError(f"expected an example batch of at least one sample, a tensor (batch, ...), got {found}.")


def _sizes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that read a shape, and those computed from such nodes alone."""
    sizes: set[fx.Node] = set()
    for node in graph.nodes:
        read = (node.op == "call_method" and node.target in ("size", "dim", "numel")) or (
            node.op == "call_function" and node.target is getattr and node.args[1] in ("shape", "ndim")
        )
        computed = node.op == "call_function" and node.all_input_nodes and sizes.issuperset(node.all_input_nodes)
        if read or computed:
            sizes.add(node)
    return sizes


@contextlib.contextmanager
def _countable() -> Iterator[FlopCounterMode]:
    """Count operations, with fused kernels off, which the counter does not see into."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="TF32 acceleration")  # irrelevant for counting
            with (
                torch.backends.mkldnn.flags(enabled=False),
                sdpa_kernel(SDPBackend.MATH),
                FlopCounterMode(display=False) as counter,
            ):
                yield counter
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _run(module: fx.GraphModule, example: Tensor, batch: int) -> tuple[dict[fx.Node, Any], dict[fx.Node, int]]:
    log = logging.getLogger("torch._subclasses.fake_tensor")
    try:
        log.disabled = True  # it prints tracebacks of errors that are handled here
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _metered(module, example.new_empty((batch, *example.shape[1:])))
    except Exception:  # a module that looks at its data, or an operation without shape inference: use real data
        sample = example[:1].expand(batch, *example.shape[1:])
    finally:
        log.disabled = False
    return _metered(module, sample)


def _check_dtype(module: fx.GraphModule, example: Tensor, macs: dict[fx.Node, int]) -> None:
    """Run the first operation with MACs on real data: tensors without data accept a wrong dtype."""

    class Done(Exception):
        pass

    class UpToFirstMacs(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if macs[n]:
                raise Done
            return value

    with torch.no_grad(), temporary_mode(module, training=False), contextlib.suppress(Done):
        UpToFirstMacs(module).run(example[:1])


def _metered(module: fx.GraphModule, x: Tensor) -> tuple[dict[fx.Node, Any], dict[fx.Node, int]]:
    values: dict[fx.Node, Any] = {}
    macs: dict[fx.Node, int] = {}

    class Meter(fx.Interpreter):
        extra_traceback = False

        def get_attr(self, *args: Any) -> Any:
            value = super().get_attr(*args)  # detached, or the counter looks for a gradient that there is none of
            return value.detach() if isinstance(value, nn.Parameter) else value

        def run_node(self, n: fx.Node) -> Any:
            before = counter.get_total_flops()
            value = super().run_node(n)
            macs[n] = (counter.get_total_flops() - before) // 2 // len(x)
            values[n] = fx.node.map_aggregate(value, lambda v: v.to("meta") if isinstance(v, Tensor) else v)
            return value

    with torch.no_grad(), temporary_mode(module, training=False), _countable() as counter:
        Meter(module).run(x)
    return values, macs


def _classes(model: nn.Module, graph: fx.Graph, values: dict[fx.Node, Any]) -> int:
    out = values[graph.output_node()]
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != BATCH:
        found = f"shape {('batch', *out.shape[1:])}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise CutError(
            f"{type(model).__name__} must return class logits (batch, classes), got {found}. Wrap it in a module that "
            "returns only those."
        )
    return int(out.shape[1])
