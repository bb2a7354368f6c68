"""Float32 or bfloat16? Measured on a few steps of the very network: no list of processors tells."""

from __future__ import annotations

import copy
import time

import torch
from torch import Tensor

from penstock.gating.network import GatedNetwork

ROUNDS = 3
FASTER = 1.2
"""How many times as fast bfloat16 must be: it costs some precision, and a small difference may be noise."""


def bfloat16_is_faster(net: GatedNetwork, x: Tensor) -> bool:
    """Return whether training steps on a batch take clearly less time in bfloat16, on the CPU."""
    trial = copy.deepcopy(net).train()
    if x.ndim == 4:
        trial.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.to(memory_format=torch.channels_last)
    with torch.random.fork_rng(devices=[]):
        seconds = [(_step(trial, x, False), _step(trial, x, True)) for _ in range(1 + ROUNDS)]
    float32, bfloat16 = map(min, zip(*seconds[1:], strict=True))  # the first are to warm up
    return bfloat16 * FASTER < float32


def _step(net: GatedNetwork, x: Tensor, bfloat16: bool) -> float:
    """Return the seconds of one pass forward and back."""
    began = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        logits = net(x).logits
    if logits.requires_grad:
        logits.float().sum().backward()
    return time.perf_counter() - began
