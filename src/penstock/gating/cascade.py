"""The gate cascade in torch: which stage each sample exits at, given the gate logits of all samples."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor


def is_stopped(gate_logit: Tensor, threshold: float | Tensor) -> Tensor:
    """Return which samples a gate stops: those whose logit is below the threshold."""
    return gate_logit.double() < threshold


def exit_stages(
    gate_logits: Sequence[Tensor | None],
    thresholds: Sequence[float | None],
    *,
    samples: int,
    active: Collection[int] | None = None,
) -> Tensor:
    """Return the stage at which each sample exits, counted from 1: the first whose active gate stops it.

    Samples that no gate stops exit at the last stage, ``len(gate_logits) + 1``.

    Args:
        gate_logits: (samples,) for each layer; None without a gate.
        thresholds: the logit at which a sample passes, for each layer; None without a gate.
        active: the layers whose gates are on; None for all that have a gate and a threshold.

    >>> exit_stages([torch.tensor([-1.0, 2.0, 2.0]), torch.tensor([3.0, -1.0, 1.0])], [0.0, 0.0], samples=3)
    tensor([1, 2, 3])
    """
    if active is None:
        active = [i for i, logit in enumerate(gate_logits) if logit is not None and thresholds[i] is not None]
    stages = torch.full((samples,), len(gate_logits) + 1)
    for i in sorted(active, reverse=True):  # the first gate that stops a sample is written last
        logit, threshold = gate_logits[i], thresholds[i]
        assert logit is not None and threshold is not None, f"layer {i} has no gate"
        stages[is_stopped(logit, threshold)] = i + 1
    return stages
