"""Configuration of a training run, as small frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from penstock.errors import TrainingError
from penstock.training.optimizer import OptimizerConfig, OptimizerFactory

Accelerator = Literal["cpu", "gpu", "auto"]
Precision = Literal["auto", "float32", "bfloat16"]
Keep = Literal["last", "best"]
TrainOnly = Literal["all", "gates", "gates and masks"]


@dataclass(frozen=True)
class Hardware:
    """What the training runs on.

    Attributes:
        devices: the number of processes (or accelerators) that train together, each with batches of ``batch_size``.
            Each runs the whole script, so code after `fit` runs in all of them.
        accelerator: "cpu", "gpu" (any vendor), or "auto" for the best available.
        precision: "auto" takes bfloat16 where a few steps, measured before training, are clearly faster, else float32;
            state "float32" or "bfloat16" for runs that repeat to the bit.
        workers: processes that load data in the background; for data that is read file by file.
    """

    devices: int = 1
    accelerator: str = "cpu"
    precision: Precision = "auto"
    workers: int = 0

    def __post_init__(self) -> None:
        _check_choice("accelerator", self.accelerator, Accelerator)
        _check_choice("precision", self.precision, Precision)
        if self.accelerator == "gpu" and not torch.accelerator.is_available():
            raise TrainingError("accelerator='gpu', but torch finds no GPU: use 'cpu' or 'auto'.")
        _check_at_least("devices", self.devices, 1)
        _check_at_least("workers", self.workers, 0)

    @property
    def device(self) -> torch.device:
        """The torch device of one process."""
        found = None if self.accelerator == "cpu" else torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")

    def bfloat16(self) -> bool:
        """Return whether to compute in bfloat16: if asked to, or if this machine has instructions for it."""
        if self.precision != "auto":
            return self.precision == "bfloat16"
        if self.accelerator != "cpu":
            return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "sve_bf16"))


@dataclass(frozen=True)
class FitConfig:
    """How `fit` runs.

    Attributes:
        epochs: passes over the training data.
        batch_size: samples per step and device.
        folder: the run directory, for logs (CSV, TensorBoard) and checkpoints (best, last); None keeps nothing on disk.
        seed: the same seed gives the same weights.
        keep: the weights to end with: those of the last epoch, or of the epoch with the lowest validation loss.
        progress: show a progress bar.
        optimizer: an OptimizerConfig, or a factory that takes the parameters and returns a torch optimizer.
        frozen: names of modules of your network that are not trained, such as ("stem", "blocks.0"); their batch norms
            keep their statistics.
        callbacks: your own Lightning callbacks.
        loggers: your own Lightning loggers, beside those of the run directory.
        hardware: devices, precision and data-loading processes.
    """

    epochs: int = 20
    batch_size: int = 256
    folder: str | Path | None = None
    seed: int = 0
    keep: Keep = "last"
    progress: bool = True
    optimizer: OptimizerConfig | OptimizerFactory = OptimizerConfig()
    frozen: tuple[str, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    loggers: tuple[Logger, ...] = ()
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        _check_at_least("epochs", self.epochs, 1)
        _check_at_least("batch_size", self.batch_size, 1)
        _check_choice("keep", self.keep, Keep)
        if self.keep == "best" and self.folder is None:
            raise TrainingError("keep='best' needs a folder for its checkpoints: pass folder.")


def _check_choice(name: str, value: object, choices: Any) -> None:
    if value not in get_args(choices):
        raise TrainingError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}.")


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise TrainingError(f"{name} must be at least {least}, got {value}.")
