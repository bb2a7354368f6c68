"""Turn a network into a graph of its operations that is correct in training and in evaluation.

Two ways: `symbolic` gives a graph for inputs of any size; `recorder` gets through forwards that symbols do not, and is
tried when the first way fails or would keep blocks of layers in one piece. Both trace each mode, and `merge` makes one
graph of the two. A submodule that cannot be traced becomes a leaf on its own.

A module that holds blocks and draws random numbers in training (layer drop, masking of the input) cannot be a leaf, or
no cut would be left: its own forward, not those of its parts, is traced as in evaluation.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

from torch import Tensor, fx, nn

from penstock.errors import CutError
from penstock.gating.surgery.graph import RandomForward, Trace, Untraceable, holds_blocks
from penstock.gating.surgery.merge import BATCH, OTHER_BATCH, merge
from penstock.gating.surgery.recorder import recorded
from penstock.gating.surgery.symbolic import optional_arguments, traced
from penstock.gating.temporary_mode import temporary_mode


def trace(model: nn.Module, example: Tensor) -> Trace:
    """Trace ``model`` without changing it."""
    if model._forward_hooks or model._forward_pre_hooks:
        raise CutError(
            f"{type(model).__name__} has forward hooks, which its stages would lose: remove them, or wrap the network "
            "in a module that does the same."
        )
    optional_arguments(model)  # or it has several inputs
    try:
        first = _trace(model, lambda leaves, still, batch: traced(model, leaves))
    except CutError:
        first = None
    if first is not None and not isinstance(first.graph.output_node().args[0], fx.Node):
        first = None  # an object or several outputs
    if first is not None and not _undivided(model, first):
        return first
    try:
        second = _trace(model, lambda leaves, still, batch: recorded(model, leaves, still, example, batch))
    except CutError:
        if first is None:
            raise
        return first
    return second if first is None or _undivided(model, second) < _undivided(model, first) else first


def _undivided(model: nn.Module, trace: Trace) -> int:
    """Return the number of leaves that hold blocks of layers."""
    return sum(holds_blocks(model.get_submodule(path)) for path in trace.leaves)


def _trace(model: nn.Module, in_mode: Callable[[set[str], set[str], int], Trace]) -> Trace:
    """Trace in both modes, with ever more leaves, until it works."""
    leaves: set[str] = set()
    still: set[str] = set()
    while True:
        try:
            with temporary_mode(model, training=True):
                training = in_mode(leaves, still, BATCH)
            known = len(leaves)
            with temporary_mode(model, training=False):
                evaluation = in_mode(leaves, still, OTHER_BATCH)
            if len(leaves) == known:
                return merge(training, evaluation)
        except Untraceable as failure:
            for path in failure.args:
                drawn = isinstance(failure.__cause__, RandomForward) and path not in still
                if drawn and holds_blocks(model.get_submodule(path)):
                    still.add(path)
                elif path and path not in leaves:
                    leaves.add(path)
                else:
                    raise CutError(_explain(model, failure)) from failure.__cause__


def _explain(model: nn.Module, failure: Untraceable) -> str:
    cause = failure.__cause__
    if isinstance(cause, CutError):
        return str(cause)
    frames = traceback.extract_tb(cause.__traceback__ if cause else None)
    where = "".join([f" at {frame.line!r}" for frame in frames if frame.name == "forward"][-1:])
    return (
        f"{type(model).__name__}.forward cannot be traced{where}: {cause}. If it depends on the data, divide it "
        "yourself and pass its stages as a list: gate([stage1, stage2, ...], example)."
    )
