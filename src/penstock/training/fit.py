"""Train a gated network with Lightning: progress, logs, checkpoints, resuming, several processes.

For your own `lightning.Trainer` use `GatedLightningModule`; for your own loop, `Objective` (examples/own_loop.py).
"""

from __future__ import annotations

import copy
import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import lightning as L
import torch
from lightning.pytorch.callbacks import RichProgressBar
from torch import nn
from torch.utils.data import DataLoader

from penstock.datasets.loading import Data, cheap_labels, fingerprint, loader, pair_of, reproducible
from penstock.errors import TrainingError
from penstock.evaluation.outputs import check_both_kinds
from penstock.gating.checkpoint import describe
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective, check_labels
from penstock.training.allocator import keep_freed_memory
from penstock.training.config import FitConfig, Hardware, TrainOnly
from penstock.training.freezing import Freezing
from penstock.training.module import GatedLightningModule, History
from penstock.training.optimizer import OptimizerConfig, OptimizerFactory
from penstock.training.precision import bfloat16_is_faster
from penstock.training.recalibration import has_drawn_masks, recalibrate_batch_norm
from penstock.training.run_directory import RunDirectory, storage_errors


def fit(
    net: GatedNetwork,
    train: Data,
    val: Data | None = None,
    *,
    objective: Objective = Objective(),
    config: FitConfig = FitConfig(),
    teacher: nn.Module | None = None,
    train_only: TrainOnly = "all",
) -> History:
    """Train ``net`` in place: network, gates and masks jointly. Thresholds go back to a probability of ½.

    A network that looks pretrained is trained at a tenth of the gates' learning rate, one that starts with the weights
    of its teacher at 0.03 of it (`OptimizerConfig.network_rate`).

    A network in evaluation mode is put into training mode; it always ends in evaluation mode. In a network that is in
    training mode, submodules frozen with ``.eval()`` stay frozen.

    Args:
        train: a DataLoader, a Dataset or a pair of tensors (x, y); the latter two are shuffled.
        val: the same, for the metrics of each epoch.
        objective: the loss to minimize.
        config: epochs, batch size, optimizer, frozen parts, seed, run directory, hardware. A run that was killed
            resumes from its last epoch when it is started again with the same folder, and ends with the same weights
            as an uninterrupted one (a DataLoader with its own sampler must make its order reproducible itself).
        teacher: a network for the same inputs and classes to distil from (`Objective.distillation`), best the one
            before it was gated, fine-tuned on the same data; it is not trained.
        train_only: "gates" leaves network and masks as they are, so that whatever passes is answered exactly as before;
            "gates and masks" leaves the network as it is; "all" trains everything.
    """
    if config.keep == "best" and val is None:
        raise TrainingError("keep='best' needs validation data: pass val.")
    if train_only not in get_args(TrainOnly):
        raise TrainingError(f"train_only must be one of {', '.join(get_args(TrainOnly))}, got {train_only!r}.")
    _check_data(net, train, val)
    keep_freed_memory()
    freezing = Freezing(net, train_only, config.frozen)
    batches = loader(train, batch_size=config.batch_size)
    run = None if config.folder is None else RunDirectory(Path(config.folder), validated=val is not None)
    config = replace(config, hardware=_with_precision(config.hardware, run, net, batches))
    teacher = None if teacher is None else copy.deepcopy(teacher)  # it may be the very modules that `ungate` returned
    module = _FitModule(net, objective, teacher, freezing, data={"train": train, "val": val}, config=config, run=run)
    resume = None if run is None else run.claim(module.settings())
    hardware, progress = config.hardware, config.progress
    with _quiet(), storage_errors(run), freezing.applied():
        trainer = L.Trainer(
            max_epochs=config.epochs,
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            strategy="ddp" if hardware.devices > 1 else "auto",
            precision="bf16-mixed" if hardware.bfloat16() else "32-true",
            gradient_clip_val=config.optimizer.clip if isinstance(config.optimizer, OptimizerConfig) else None,
            logger=[*([] if run is None else run.loggers()), *config.loggers],
            callbacks=[
                *([run.checkpoints()] if run else []),
                *([_ProgressBar(leave=True)] if progress else []),
                *config.callbacks,
            ],
            enable_progress_bar=progress,
            enable_checkpointing=run is not None,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,  # EpochOrder distributes the samples
            log_every_n_steps=10,
            default_root_dir=None if run is None else run.folder,
        )
        trainer.fit(module, ckpt_path=resume, weights_only=True if resume else None)
    if run is not None:
        history = module.history
        history.last, history.best = run.last, run.best if run.best.exists() else run.last
        if config.keep == "best":
            module.load_state_dict(torch.load(run.best, weights_only=True)["state_dict"])
    if has_drawn_masks(net):
        title = "recalibrating batch norm" if progress else None
        recalibrate_batch_norm(net, train, batch_size=config.batch_size, device=hardware.device, progress=title)
    net.eval()
    return module.history


class _FitModule(GatedLightningModule):
    """Adds what only `fit` needs: the data, a seed for each batch, and the run directory's log."""

    def __init__(
        self,
        net: GatedNetwork,
        objective: Objective,
        teacher: nn.Module | None,
        freezing: Freezing,
        *,
        data: dict[str, Data | None],
        config: FitConfig,
        run: RunDirectory | None,
    ):
        super().__init__(net, objective, config.optimizer, teacher=teacher)
        self.data, self.config, self.run, self.freezing = data, config, run, freezing
        self.channels_last = len(net.spec.example_shape) == 3

    def settings(self) -> dict[str, Any]:
        """Return what identifies this run: a folder resumes only a run with the same settings."""
        return {
            "spec": asdict(self.net.spec),
            "background": self.net.background,
            "layers": [describe(layer) for layer in self.net.layers],
            "data": {part: fingerprint(data) for part, data in self.data.items() if data is not None},
            "objective": asdict(self.objective),
            "optimizer": _optimizer_settings(self.optimizer),
            "frozen": sum(parameter.numel() for parameter in self.freezing.parameters),
            "teacher": None if self.teacher is None else digest_of(self.teacher),
            "bfloat16": self.config.hardware.bfloat16(),
            "batch_size": self.config.batch_size,
            "epochs": self.config.epochs,
            "seed": self.config.seed,
        }

    def setup(self, stage: str) -> None:
        """Use the memory layout in which convolutions of images run fastest."""
        super().setup(stage)
        self.freezing.set_modes()
        if self.channels_last:
            for network in (self.net, self.teacher):
                if network is not None:
                    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training data, in an order that depends only on the seed and the epoch."""
        return self._loader("train")

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        return [] if self.data["val"] is None else self._loader("val")

    def _loader(self, part: str) -> DataLoader[Any]:
        data, config, training = self.data[part], self.config, part == "train"
        assert data is not None
        source = loader(data, batch_size=config.batch_size, shuffle=training, workers=config.hardware.workers)
        rank, world = self.global_rank, self.trainer.world_size
        return reproducible(source, config.seed, rank=rank, world=world, training=training)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Give images the same memory layout as the weights."""
        if not self.channels_last:
            return batch
        x, y = pair_of(batch)
        return (x.to(memory_format=torch.channels_last) if x.ndim == 4 else x), y

    def on_train_epoch_start(self) -> None:
        """Keep frozen parts in evaluation mode: Lightning returns to training mode after each validation."""
        super().on_train_epoch_start()
        self.freezing.set_modes()

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        """Seed by epoch and batch, so that a resumed run draws the same random numbers."""
        super().on_train_batch_start(batch, index)
        torch.manual_seed(hash((self.config.seed, self.current_epoch, index, self.global_rank)) % 2**63)

    def on_train_epoch_end(self) -> None:
        """Log the epoch to the run directory too."""
        super().on_train_epoch_end()
        if self.run is not None and self.global_rank == 0:
            self.run.log(self.history.epochs)


def _with_precision(
    hardware: Hardware, run: RunDirectory | None, net: GatedNetwork, train: DataLoader[Any]
) -> Hardware:
    """Return the hardware with "auto" decided: as the run to be resumed has it, or by a measurement.

    Several processes must decide alike, so they go by what the CPU can do.
    """
    bfloat16 = None if run is None or hardware.precision != "auto" else run.recorded("bfloat16")
    if bfloat16 is None:
        bfloat16 = hardware.bfloat16()
        if bfloat16 and hardware.precision == "auto" and hardware.device.type == "cpu" and hardware.devices == 1:
            with torch.random.fork_rng(devices=[]):
                x, _ = pair_of(next(iter(train)))
            bfloat16 = bfloat16_is_faster(net, x)
    return replace(hardware, precision="bfloat16" if bfloat16 else "float32")


def digest_of(module: nn.Module) -> str:
    """Return a checksum of a module's weights, which tells one teacher from another."""
    digest = hashlib.sha256()
    for name, values in module.state_dict().items():
        digest.update(
            name.encode() + values.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def _optimizer_settings(optimizer: OptimizerConfig | OptimizerFactory) -> dict[str, Any]:
    """Return what identifies an optimizer; the repr of a function would contain its address."""
    if isinstance(optimizer, OptimizerConfig):
        return asdict(optimizer)
    if isinstance(optimizer, partial):
        return _optimizer_settings(optimizer.func) | {"args": repr(optimizer.args), "options": repr(optimizer.keywords)}
    named = optimizer if hasattr(optimizer, "__qualname__") else type(optimizer)
    return {"factory": f"{named.__module__}.{named.__qualname__}"}


def _check_data(net: GatedNetwork, train: Data, val: Data | None) -> None:
    if not net.active():
        return
    for part in (train, val):
        known = None if part is None else cheap_labels(part)
        if known is not None and len(known):
            check_labels(known, net.spec.classes)
            check_both_kinds(net.positive(known), "train")


class _ProgressBar(RichProgressBar):
    """A progress bar without the version number of the log files."""

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        shown = super().get_metrics(trainer, pl_module)
        return {name: value for name, value in shown.items() if name != "v_num"}


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Lightning's hints; errors and our own warnings still show."""
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for module in ("lightning", "torch", "torchmetrics", "pytorch_lightning"):
                warnings.filterwarnings("ignore", module=rf"{module}\b")
            yield
    finally:
        logger.setLevel(before)
