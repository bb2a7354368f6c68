"""The optimizer of a training run, with learning rates that suit new and pretrained networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, OneCycleLR, SequentialLR

from penstock.errors import TrainingError
from penstock.gating.network import GatedNetwork

Schedule = Literal["one-cycle", "rise-and-fall", "cosine", "constant"]

OptimizerFactory = Callable[[Iterable[Tensor]], Optimizer]
"""Takes the parameters and returns an optimizer, such as ``functools.partial(torch.optim.SGD, lr=0.1)``."""

PRETRAINED_RATE, OWN_TEACHER_RATE = 0.1, 0.03
"""The network's rate relative to the gates': if it looks pretrained, and if it is what its teacher is, so that it has
learnt the very task."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with a learning-rate schedule; the defaults are the paper's rate with a one-cycle schedule.

    Attributes:
        rate: the learning rate of the gates; the peak of a schedule.
        schedule: "one-cycle" (up, then down to nearly 0, with Adam's momentum cycling inversely: for few epochs),
            "rise-and-fall" (the same with constant momentum), "cosine", or "constant", the paper's.
        mask_rate: the masks' learning rate relative to ``rate``: slower masks flip less and end up better.
        network_rate: the learning rate of the network's own weights relative to ``rate``; None for 0.03 if the network
            starts with its teacher's weights, 0.1 if it looks pretrained (`is_pretrained`), else 1.
        weight_decay: decoupled weight decay (AdamW) of the network's and the gates' weight matrices and kernels.
        warm_up: the share of the steps in which the rate rises; None for 0.3 in a cycle, else 0.
        clip: the largest norm of all gradients together; None for no limit.
    """

    rate: float = 0.01
    schedule: Schedule = "one-cycle"
    mask_rate: float = 0.3
    network_rate: float | None = None
    weight_decay: float = 0.0
    warm_up: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        for name in ("rate", "mask_rate", "network_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise TrainingError(f"{name} must be greater than 0, got {value}.")
        if not 0 <= self.weight_decay < math.inf:
            raise TrainingError(f"weight_decay must be at least 0, got {self.weight_decay}.")
        if self.warm_up is not None and not 0 <= self.warm_up < 1:
            raise TrainingError(f"warm_up, a share of the steps, must be at least 0 and below 1, got {self.warm_up}.")
        if self.schedule not in get_args(Schedule):
            choices = ", ".join(map(repr, get_args(Schedule)))
            raise TrainingError(f"schedule must be one of {choices}, got {self.schedule!r}.")

    def build(self, net: GatedNetwork, steps: int) -> tuple[Optimizer, LRScheduler | None]:
        """Return the optimizer for a run of ``steps`` steps, and its schedule, which advances with every step."""
        groups = self._groups(net)
        kind = torch.optim.AdamW if self.weight_decay else torch.optim.Adam
        optimizer = kind(groups, weight_decay=0.0)
        if self.schedule in ("one-cycle", "rise-and-fall"):
            rates, cycle_momentum = [group["lr"] for group in groups], self.schedule == "one-cycle"
            rise = 0.3 if self.warm_up is None else self.warm_up
            return optimizer, OneCycleLR(
                optimizer, rates, total_steps=steps, cycle_momentum=cycle_momentum, pct_start=rise
            )
        rising = round((self.warm_up or 0.0) * steps)
        then = CosineAnnealingLR(optimizer, steps - rising) if self.schedule == "cosine" else None
        if not rising:
            return optimizer, then
        first = LinearLR(optimizer, 1 / (rising + 1), total_iters=rising)
        return optimizer, first if then is None else SequentialLR(optimizer, [first, then], [rising])

    def for_network(self, net: GatedNetwork, teacher: nn.Module | None = None) -> OptimizerConfig:
        """Return it with the network's rate decided, which must happen before a resumed run loads trained weights."""
        if self.network_rate is not None:
            return self
        if teacher is not None and has_weights_of(net, teacher):
            return replace(self, network_rate=OWN_TEACHER_RATE)
        return replace(self, network_rate=PRETRAINED_RATE if is_pretrained(net.stages) else 1.0)

    def _groups(self, net: GatedNetwork) -> list[dict[str, Any]]:
        """Return groups of parameters with the same rate and weight decay; those that are frozen are in none."""
        masks = {id(layer.compression.phi) for layer in net.layers if layer.compression is not None}
        own = {id(parameter) for parameter in net.stages.parameters()}
        network_rate = self.rate * (self.for_network(net).network_rate or 1.0)
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for parameter in net.parameters():
            if not parameter.requires_grad:
                continue
            rate, decay = self.rate, self.weight_decay if parameter.ndim > 1 else 0.0
            if id(parameter) in masks:
                rate, decay = self.rate * self.mask_rate, 0.0
            elif id(parameter) in own:
                rate = network_rate
            groups.setdefault((rate, decay), []).append(parameter)
        if not groups:
            raise TrainingError("nothing to train: all parameters are frozen.")
        return [{"params": group, "lr": rate, "weight_decay": decay} for (rate, decay), group in groups.items()]


def has_weights_of(net: GatedNetwork, teacher: nn.Module) -> bool:
    """Return whether a gated network's own weights are those of its teacher."""
    origin = net.origin if isinstance(net.origin, nn.Module) else nn.ModuleList(net.origin)
    ours, theirs = list(origin.parameters()), list(teacher.parameters())
    return len(ours) == len(theirs) and all(
        torch.equal(a.detach(), b.detach().to(a.device)) for a, b in zip(ours, theirs, strict=True)
    )


def is_pretrained(module: nn.Module) -> bool:
    """Return whether a network looks trained: its normalisation layers differ from freshly built ones.

    A fresh one has equal scales, no shifts and no statistics. A network without normalisation layers looks fresh.

    >>> is_pretrained(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))
    False
    """
    for part in module.modules():
        if not isinstance(part, _NormBase | nn.LayerNorm | nn.GroupNorm | nn.RMSNorm):
            continue
        scale, shift, mean = (getattr(part, name, None) for name in ("weight", "bias", "running_mean"))
        if scale is not None and bool((scale != scale.flatten()[0]).any()):
            return True
        if any(values is not None and bool(values.any()) for values in (shift, mean)):
            return True
    return False
