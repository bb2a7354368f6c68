"""The cost of a sample in a gated network: multiply-accumulates, and bytes that cross the cuts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from penstock.gating.layers.gated_compression import FLOAT_BYTES
from penstock.gating.network import GatedNetwork


@dataclass(frozen=True)
class Cost:
    """MACs and bytes of each sample, (n,), or their means."""

    macs: Tensor
    payload_bytes: Tensor


def gated_cost(net: GatedNetwork, exit_stage: Tensor, active: Collection[int] | None = None) -> Cost:
    """Return what each sample cost, given the stage at which it exited.

    A sample pays for each stage it ran through, with changes of coordinates before and after a cut, for each gate that
    scored it, and for the kept values at each cut that it crossed.

    Args:
        exit_stage: (n,), as in `Prediction`: the last stage that a sample ran through, counted from 1.
        active: the layers whose gates were on.
    """
    active = net.active(active)
    macs = torch.full_like(exit_stage, net.spec.macs[0])
    payload = torch.zeros_like(exit_stage)
    for i, layer in enumerate(net.layers):
        scored, crossed = exit_stage > i, exit_stage > i + 1
        if i in active:
            macs += scored * layer.gate_macs
        macs += crossed * net.spec.macs[i + 1]
        macs += scored * layer.transform_macs + crossed * layer.transform_macs
        payload += crossed * layer.transmitted_bytes
    return Cost(macs, payload)


def plain_cost(net: GatedNetwork) -> tuple[int, int]:
    """Return MACs and bytes a sample of the same network, cut at the same places, without gates and masks."""
    return sum(net.spec.macs), sum(prod(layer.feature) for layer in net.layers) * FLOAT_BYTES


def mean_at(values: Tensor, positive: Tensor, positive_share: float | None) -> float:
    """Return the mean over a stream with this share of positives; None for the data's own."""
    if positive_share is None:
        return values.double().mean().item()
    of_positives, of_negatives = values[positive].double().mean(), values[~positive].double().mean()
    return (positive_share * of_positives + (1 - positive_share) * of_negatives).item()
