"""Find every legal place for a gate: where exactly one tensor crosses.

A value crosses a place when it is computed before it and used after it. Parameters, values computed from them alone,
and sizes do not count: the next stage can fetch them, compute them, or get them from the tensor that crosses.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, fx, nn

from penstock.errors import CutError
from penstock.gating.surgery.graph import Trace, is_block, owner
from penstock.gating.surgery.profile import Measured, check_example, measure
from penstock.gating.surgery.trace import trace
from penstock.gating.tables import cuts_table, render


@dataclass(frozen=True)
class Cut:
    """A legal place for a gate.

    Attributes:
        name: the outermost module that ends there, or the operation's name.
        depth: the share of the network's blocks before it; a block is a part with MACs that no legal cut divides.
        macs: multiply-accumulates per sample before it.
        shape: of one sample's features there.
        also: other names of the same place.
        block_end: whether a whole block of layers ends there, such as ``layer2.0`` or ``encoder.layers.3``.
        macs_share: ``macs`` as a share of the network's.
    """

    name: str
    depth: float
    macs: int
    shape: tuple[int, ...]
    also: tuple[str, ...] = ()
    block_end: bool = False
    macs_share: float = 0.0


NEAR = 0.05
"""Depths that differ by less are about the same."""


class Cuts(tuple[Cut, ...]):
    """Legal cuts, in the order of the network; prints as a table."""

    def __str__(self) -> str:
        return render(cuts_table(self))

    __repr__ = __str__


def cuts(model: nn.Module, example: Tensor) -> Cuts:
    """List every place where a gate can be inserted; ``model`` is not changed.

    Args:
        model: any network with one input and one output.
        example: a batch as the network takes it, (batch, ...).
    """
    return Cuts(place.cut for place in survey(model, example).places)


@dataclass(frozen=True)
class Place:
    """A cut, the node whose value crosses there, and the index of the last node before it."""

    cut: Cut
    node: fx.Node
    index: int


@dataclass(frozen=True)
class Survey:
    """A network's graph, measurements and legal cuts."""

    model: nn.Module
    traced: Trace
    measured: Measured
    places: tuple[Place, ...]

    def find(self, at: float | int | str | Iterable[float | str]) -> tuple[Place, ...]:
        """Return the places at the given depths or names, or a number of them, in the order of the network."""
        requests = _requests(at)
        if requests and not self.places:
            raise CutError(
                f"{type(self.model).__name__} has no legal cut: nowhere does exactly one tensor cross. Its branches "
                "run side by side from end to end, or all layers read the input: use a network with one trunk."
            )
        found: dict[Place, float | str] = {}
        for request in requests:
            place = self._by_name(request) if isinstance(request, str) else self._by_depth(request)
            if place in found:
                depths = ", ".join(f"{depth:.2f}" for depth in sorted({p.cut.depth for p in self.places}))
                raise CutError(
                    f"two gates at one place: {found[place]!r} and {request!r} are both nearest to {place.cut.name!r}. "
                    f"Legal depths of this network: {depths}."
                )
            found[place] = request
        return tuple(sorted(found, key=lambda place: place.index))

    def _by_depth(self, depth: float) -> Place:
        if not 0 < depth < 1:
            raise CutError(
                f"a depth must be between 0 and 1, both excluded, got {depth}. 0.4 is after 40 % of the blocks."
            )
        best = min(abs(place.cut.depth - depth) for place in self.places)
        near = [place for place in self.places if abs(place.cut.depth - depth) < best + NEAR]
        # Several places are often about as deep (after a convolution, its norm, its activation, its pool; inside a
        # bottleneck and after it): the smallest tensor is the cheapest to send; of those the end of a block, of those
        # the nearest, and the last, which is the furthest processed.
        return min(
            reversed(near),
            key=lambda place: (
                torch.Size(place.cut.shape).numel(),
                not place.cut.block_end,
                round(abs(place.cut.depth - depth), 6),
            ),
        )

    def _by_name(self, name: str) -> Place:
        for names_of in (lambda cut: (cut.name, *cut.also[1:]), lambda cut: cut.also):  # modules before operations
            for place in self.places:
                if name in names_of(place.cut):
                    return place
        model = type(self.model).__name__
        refused = f"cannot place a gate after {name!r}"
        modules = [path for path, _ in self.model.named_modules() if path]
        known = [other for place in self.places for other in (place.cut.name, *place.cut.also)]
        ends = [node for node, names in self.traced.ends.items() if name in names]
        if ends:
            raise CutError(f"{refused}: {self._why_not(ends[0])}")
        inside = [leaf for leaf in self.traced.leaves if name.startswith(leaf + ".")]
        if inside:
            raise CutError(f"{refused}: it is inside {inside[0]!r}, which cannot be traced and so cannot be cut.")
        if name in modules:
            raise CutError(f"{refused}: its output is not a single tensor of {model}. `penstock cuts` lists all cuts.")
        close = difflib.get_close_matches(name, dict.fromkeys(known + modules), n=3)
        hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Legal cuts: {', '.join(known[:5])}, …"
        raise CutError(f"{refused}: {model} has no such module. {hint}")

    def _why_not(self, node: fx.Node) -> str:
        nodes = list(self.traced.graph.nodes)
        index = nodes.index(node)
        crossing = list(_crossings(nodes, self.measured))[index]
        later = [p.cut.name for p in self.places if p.index > index][:1]
        earlier = [p.cut.name for p in self.places if p.index < index][-1:]
        if len(crossing) == 1:
            shape = tuple(getattr(self.measured.values[crossing[0]], "shape", ()))
            reason = f"expected a tensor (batch, features …) with layers before and after it, got shape {shape}"
        else:
            names = ", ".join(n.name for n in crossing)
            reason = f"{len(crossing)} tensors cross there ({names}: a skip connection or a branch)"
        nearest = ", ".join(map(repr, later + earlier)) or "none"
        return f"{reason}. Nearest legal cuts: {nearest}. `penstock cuts` lists all."


def survey(model: nn.Module, example: Tensor) -> Survey:
    """Trace and measure ``model``, and find the places where it can be cut."""
    check_example(example)
    traced = trace(model, example)
    measured = measure(model, traced, example)
    return Survey(model, traced, measured, _places(model, traced, measured))


def _requests(at: Any) -> list[float | str]:
    """Return the depths and names that ``at`` stands for."""
    if isinstance(at, bool) or at is None:
        raise CutError(f"at must be a depth (0.4), a number of gates (3), a module's name, or a list, got {at}.")
    if isinstance(at, Integral):
        if at < 0:
            raise CutError(f"at must be at least 0 as a number of gates, got {at}.")
        return [(i + 1) / (int(at) + 1) for i in range(int(at))]
    requests = [at] if isinstance(at, (Real, str)) else list(at)
    for one in requests:
        if isinstance(one, Integral) or not isinstance(one, (Real, str)):  # bool is Integral too
            raise CutError(f"each element of at must be a depth like 0.4 or a module's name, got {one!r}.")
    return [one if isinstance(one, str) else float(one) for one in requests]


def _places(model: nn.Module, traced: Trace, measured: Measured) -> tuple[Place, ...]:
    nodes = list(traced.graph.nodes)
    legal: list[tuple[int, fx.Node]] = []
    for i, crossing in enumerate(_crossings(nodes, measured)):
        if len(crossing) == 1 and _is_feature(crossing[0], measured) and (not legal or legal[-1][1] is not crossing[0]):
            legal.append((i, crossing[0]))
    ends = [0, *(i + 1 for i, _ in legal), len(nodes)]
    blocks = list(accumulate(any(measured.macs[n] for n in nodes[start:end]) for start, end in pairwise(ends)))
    calls: dict[str, int] = {}
    names = {node: [_numbered(path, calls) for path in paths] for node, paths in traced.ends.items()}
    own = {node: _numbered(_qualified(node), calls) for node in nodes if node.op not in ("call_module", "output")}
    blocks_of_layers = {path for path, module in model.named_modules() if is_block(path, module)}
    total = sum(measured.macs.values())
    places = []
    for (i, node), blocks_before in zip(legal, blocks, strict=False):
        if 0 < blocks_before < blocks[-1]:
            modules = _names(node, names)
            operations = [node.name, *([own[node]] if node in own else [])]
            # the outermost module, a block of layers before one that only passes its output on
            names_here = reversed(modules or operations)
            name = min(names_here, key=lambda path: (path.count("."), path not in blocks_of_layers))
            also = [other for other in (*operations, *modules) if other != name]
            block_end = not blocks_of_layers.isdisjoint((name, *modules))
            before = sum(measured.macs[n] for n in nodes[: i + 1])
            shape = tuple(measured.values[node].shape[1:])
            cut = Cut(name, blocks_before / blocks[-1], before, shape, tuple(also), block_end, before / total)
            places.append(Place(cut, node, i))
    return tuple(places)


def _names(node: fx.Node, names: dict[fx.Node, list[str]]) -> list[str]:
    if node not in names and node.target is operator.getitem and node.args[1] == 0:
        node = node.args[0]  # type: ignore[assignment]  # the output of a GRU is the first item of what it returns
    return names.get(node, [])


def _qualified(node: fx.Node) -> str:
    """Return the name of an operation with that of its module: 'blocks.0.add'."""
    operation = node.target if isinstance(node.target, str) else node.target.__name__
    return ".".join(filter(None, (owner(node), operation)))


def _numbered(path: str, calls: dict[str, int]) -> str:
    """Name the second call of a shared module 'path#2'."""
    calls[path] = calls.get(path, 0) + 1
    return path if calls[path] == 1 else f"{path}#{calls[path]}"


def _is_feature(node: fx.Node, measured: Measured) -> bool:
    value = measured.values[node]
    return (
        isinstance(value, Tensor)
        and value.ndim >= 2
        and value.is_floating_point()
        and measured.batch_first(node)
        and all(size > 0 for size in value.shape)
    )


def _crossings(nodes: list[fx.Node], measured: Measured) -> Iterable[list[fx.Node]]:
    """Yield, for the place after each node, the values that cross it."""
    index = {node: i for i, node in enumerate(nodes)}
    last_use = {node: max((index[user] for user in node.users), default=-1) for node in nodes}
    live: list[fx.Node] = []
    for i, node in enumerate(nodes[:-1]):
        live = [n for n in (*live, node) if last_use[n] > i and measured.must_cross(n)]
        yield live
