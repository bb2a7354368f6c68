"""What becomes of every sample of a data set: what the network says of it, and where a gate stops it."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.datasets.loading import Data, batches
from penstock.errors import LabelError, ShapeError
from penstock.gating.network import GatedNetwork, not_finite
from penstock.gating.objective import check_labels
from penstock.gating.temporary_mode import temporary_mode


@torch.no_grad()
def collect_outputs(
    net: GatedNetwork, data: Data, *, batch_size: int = 256, progress: str | None = None
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """Run every sample through the whole network; return labels, class logits and each layer's gate logits."""
    device = next(net.parameters()).device
    labels, logits, first = [], [], 0
    gates: list[list[Tensor]] = [[] for _ in net.layers]
    with temporary_mode(net, training=False):
        for x, y in batches(data, batch_size=batch_size, progress=progress):
            check_labels(y, net.spec.classes)
            bad = not_finite(x)
            if bad:
                raise ShapeError(f"NaN or infinity in samples {[first + i for i in bad[:10]]} of the data. Clean it.")
            first += len(x)
            out = net(x.to(device))
            labels.append(y)
            logits.append(out.logits.float().cpu())
            for kept, layer, said in zip(gates, net.layers, out.gates, strict=True):
                if layer.gate is not None and said is not None:
                    kept.append(layer.gate.gate_logit(said).cpu())
    joined = [torch.cat(kept) if kept else None for kept in gates]
    all_logits = torch.cat(logits)
    if not all(torch.isfinite(part).all() for part in (all_logits, *joined) if part is not None):
        raise ShapeError(
            "the network gives NaN or infinity on this data: look for them in the input, or in a training that "
            "diverged."
        )
    return torch.cat(labels), all_logits, joined


def check_both_kinds(positive: Tensor, what: str) -> None:
    """Refuse data without positives or without negatives."""
    for kind, count in (("positives", int(positive.sum())), ("negatives", int((~positive).sum()))):
        if not count:
            raise LabelError(
                f"the data has no {kind} among its {len(positive)} samples: to {what} a gated network takes samples of "
                "interest and background. Check `positives` and `background`, and that the data was not sorted before "
                "it was split."
            )
