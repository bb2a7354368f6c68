"""How and on what a network is trained, as small frozen values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from penstock.errors import TrainingError
from penstock.gating.network import GatedNetwork


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam at the paper's rate.

    Attributes:
        rate: the learning rate; with a schedule, its highest.
        schedule: "one-cycle" (up, then down to nearly 0, and Adam's momentum the other way: for short budgets),
            "rise-and-fall" (the same at one momentum), "cosine", or "constant", the paper's.
        mask_rate: the masks' rate as a share of the others': slower masks flip less and choose better.
    """

    rate: float = 0.01
    schedule: Literal["one-cycle", "rise-and-fall", "cosine", "constant"] = "one-cycle"
    mask_rate: float = 0.3

    def __post_init__(self) -> None:
        for name in ("rate", "mask_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise TrainingError(f"{name} = {getattr(self, name)} is not possible: it is more than 0.")

    def build(self, net: GatedNetwork, steps: int) -> tuple[Optimizer, LRScheduler | None]:
        """Return the optimizer for a training of so many steps, and its schedule, which moves with each step."""
        masks = [layer.compression.phi for layer in net.layers if layer.compression is not None]
        own = {id(phi) for phi in masks}
        groups: list[dict[str, Any]] = [{"params": [p for p in net.parameters() if id(p) not in own], "lr": self.rate}]
        if masks:
            groups.append({"params": masks, "lr": self.rate * self.mask_rate})
        optimizer = torch.optim.Adam(groups)
        rates = [group["lr"] for group in groups]
        schedules: dict[str, Callable[[], LRScheduler | None]] = {
            "one-cycle": lambda: OneCycleLR(optimizer, rates, total_steps=steps),
            "rise-and-fall": lambda: OneCycleLR(optimizer, rates, total_steps=steps, cycle_momentum=False),
            "cosine": lambda: CosineAnnealingLR(optimizer, steps),
            "constant": lambda: None,
        }
        if self.schedule not in schedules:
            raise TrainingError(
                f"schedule = {self.schedule!r} is not known; known are {', '.join(map(repr, schedules))}."
            )
        return optimizer, schedules[self.schedule]()


ACCELERATORS = ("cpu", "gpu", "auto")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Hardware:
    """What the training runs on.

    Attributes:
        devices: how many processes (or accelerators) train together, each with batches of ``batch_size``. All of them
            run the whole script, so what comes after `fit` runs in each.
        accelerator: "cpu", "gpu" (of any make), or "auto" for the best there is.
        precision: "auto" takes bfloat16 on processors that compute it fast, else float32; or "float32", "bfloat16".
        workers: processes that read the data while it trains; for data that is read from files one by one.
    """

    devices: int = 1
    accelerator: str = "cpu"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    workers: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("accelerator", self.accelerator, ACCELERATORS),
            ("precision", self.precision, PRECISIONS),
        ):
            if value not in known:
                raise TrainingError(f"{name} = {value!r} is not known; known are {', '.join(map(repr, known))}.")
        if self.accelerator == "gpu" and not torch.accelerator.is_available():
            raise TrainingError("accelerator = 'gpu' came, and torch finds none here: take 'cpu', or 'auto'.")
        if self.devices < 1 or self.workers < 0:
            raise TrainingError(
                f"devices = {self.devices}, workers = {self.workers} is not possible: at least one device trains, and "
                "0 workers read in its own process."
            )

    @property
    def device(self) -> torch.device:
        """Where one process computes, as torch calls it."""
        found = None if self.accelerator == "cpu" else torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")

    def bfloat16(self) -> bool:
        """Say whether to compute in bfloat16."""
        return self.precision == "bfloat16" or (self.precision == "auto" and has_fast_bfloat16(self.accelerator))


def has_fast_bfloat16(accelerator: str = "cpu") -> bool:
    """Say whether this machine computes bfloat16 faster than float32."""
    if accelerator != "cpu":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("sve_bf16"))
