"""Run a data set through a network and collect its outputs: the one such loop, for every kind of network and engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from penstock.datasets.loading import Data, batches
from penstock.errors import LabelError, ShapeError
from penstock.gating.network import GatedNetwork, not_finite
from penstock.gating.objective import check_labels
from penstock.gating.temporary_mode import temporary_mode

Forward: TypeAlias = Callable[[Tensor], tuple[Tensor, Sequence[Tensor | None]]]
"""Returns class logits and the gate logits of each layer (None without a gate) of a batch, with all gates open."""


class Outputs(NamedTuple):
    """Labels and outputs of every sample of a data set, with all gates open.

    Shapes:
        labels: (n,); logits: (n, classes); gates: (n,) for each layer, None without a gate.
    """

    labels: Tensor
    logits: Tensor
    gates: list[Tensor | None]


def collect_outputs(net: GatedNetwork, data: Data, *, batch_size: int = 256, progress: str | None = None) -> Outputs:
    """Run every sample through the whole network.

    Raises:
        LabelError: when a label is not a class of the network.
        ShapeError: when an input or an output is NaN or infinite.
    """
    with temporary_mode(net, training=False):
        labelled = checked_batches(data, net.spec.classes, batch_size=batch_size, progress=progress)
        outputs = collect(lambda x: gate_logits(net, x), labelled)
    if not all(torch.isfinite(part).all() for part in (outputs.logits, *outputs.gates) if part is not None):
        raise ShapeError("the network's outputs are NaN or infinite on this data: did its training diverge?")
    return outputs


def checked_batches(
    data: Data, classes: int, *, batch_size: int = 256, progress: str | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches (x, y); an error if a label is not a class, or an input is NaN or infinite."""
    first = 0
    for x, y in batches(data, batch_size=batch_size, progress=progress):
        check_labels(y, classes)
        if bad := not_finite(x):
            raise ShapeError(f"NaN or infinity in samples {[first + i for i in bad[:10]]} of the data. Clean it.")
        first += len(x)
        yield x, y


@torch.no_grad()
def collect(forward: Forward, labelled: Iterable[tuple[Tensor, Tensor]]) -> Outputs:
    """Run batches (x, y) through ``forward`` and join the outputs."""
    rows = [(y, *forward(x)) for x, y in labelled]
    labels, logits, gates = zip(*rows, strict=True)
    joined = [None if of_layer[0] is None else torch.cat(of_layer) for of_layer in zip(*gates, strict=True)]
    return Outputs(torch.cat(labels), torch.cat(logits), joined)


def gate_logits(net: GatedNetwork, x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
    """Return a network's class logits and gate logits of a batch, float32 on the CPU: a `Forward`."""
    out = net(x.to(next(net.parameters()).device))
    return out.logits.float().cpu(), [None if logit is None else logit.cpu() for logit in out.gates]


def check_both_kinds(positive: Tensor, purpose: str) -> None:
    """Refuse data without positives or without negatives."""
    for kind, count in (("positives", int(positive.sum())), ("negatives", int((~positive).sum()))):
        if not count:
            raise LabelError(
                f"the data has no {kind} among its {len(positive)} samples, but both kinds are needed to {purpose} a "
                "gated network. Check `positives` and `background`, and that the data was not sorted before it was "
                "split."
            )
