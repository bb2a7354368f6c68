"""Train a gated network with Lightning: progress, logs, checkpoints, resumption, several processes.

`Objective` works in any loop of your own as well (examples/own_loop.py); this is the comfortable way.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import RichProgressBar
from torch import Tensor, nn
from torch.utils.data import DataLoader

from penstock.datasets.loading import Data, cheap_labels, fingerprint, loader, pair_of, reproducible
from penstock.errors import TrainingError
from penstock.evaluation.outputs import check_both_kinds
from penstock.gating.checkpoint import describe
from penstock.gating.network import GatedNetwork, not_finite
from penstock.gating.objective import Objective, check_labels
from penstock.training.config import Hardware, OptimizerConfig
from penstock.training.epoch_metrics import EpochMetrics, collapse
from penstock.training.recalibration import has_drawn_masks, recalibrate_batch_norm
from penstock.training.run_directory import RunDirectory, refusals


class CollapseWarning(UserWarning):
    """A gate or a mask has stopped doing its work."""


@dataclass
class History:
    """What happened in a training.

    Attributes:
        epochs: one row of metrics for each epoch.
        warnings: which gates and masks do not work, as of the last epoch.
        best: the checkpoint of the lowest validation loss, if there was a folder.
        last: the checkpoint of the last epoch.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    best: Path | None = None
    last: Path | None = None


def fit(
    net: GatedNetwork,
    train: Data,
    val: Data | None = None,
    *,
    objective: Objective = Objective(),
    epochs: int = 20,
    batch_size: int = 256,
    optimizer: OptimizerConfig = OptimizerConfig(),
    hardware: Hardware = Hardware(),
    seed: int = 0,
    folder: str | Path | None = None,
    keep: Literal["last", "best"] = "last",
    progress: bool = True,
) -> History:
    """Train ``net`` in place, jointly: network, gates and masks. Thresholds go back to a probability of ½.

    A network in evaluation mode is put into training mode, and all end in evaluation mode. In one that is in training
    mode, submodules that somebody froze with ``.eval()`` stay so.

    Args:
        train: a DataLoader, a Dataset or a pair of tensors (x, y); the latter two are shuffled.
        val: the same, for the metrics of each epoch.
        folder: where logs (CSV, TensorBoard) and checkpoints (best, last) go. A run that was killed goes on from its
            last epoch when it is started again with the same folder, and ends with the same weights as an unbroken one
            (a DataLoader with a sampler of its own must see to its order itself).
        keep: the weights to end with: of the last epoch, or of the one with the lowest validation loss.
        progress: show a progress bar.
    """
    if epochs < 1:
        raise TrainingError(f"epochs = {epochs} is not possible: train for at least one.")
    if keep not in ("last", "best") or (keep == "best" and (folder is None or val is None)):
        raise TrainingError(
            f"keep = {keep!r} is not possible: keep 'last', or 'best' with a folder and validation data."
        )
    _check_data(net, train, val)
    training = GatedLightningModule(
        net, objective, optimizer, hardware, train, val, batch_size=batch_size, epochs=epochs, seed=seed
    )
    loader(train, batch_size=batch_size)
    run = None if folder is None else RunDirectory(Path(folder), validated=val is not None)
    resume = None if run is None else run.claim(training.settings())
    net.thresholds = [None if layer.gate is None else 0.0 for layer in net.layers]  # the old ones meant other weights
    if not net.training:
        net.train()
    training.prepare()
    training.run = run
    with _quiet(), refusals(run):
        trainer = L.Trainer(
            max_epochs=epochs,
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            strategy="ddp" if hardware.devices > 1 else "auto",
            precision="bf16-mixed" if hardware.bfloat16() else "32-true",
            logger=[] if run is None else run.loggers(),
            callbacks=[*([run.checkpoints()] if run else []), *([_Bar(leave=True)] if progress else [])],
            enable_progress_bar=progress,
            enable_checkpointing=run is not None,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,  # EpochOrder deals the samples out
            log_every_n_steps=10,
            default_root_dir=None if run is None else run.folder,
        )
        trainer.fit(training, ckpt_path=resume, weights_only=True if resume else None)
    history = training.history
    if run is not None:
        history.last, history.best = run.last, run.best if run.best.exists() else run.last
        if keep == "best":
            training.load_state_dict(torch.load(run.best, weights_only=True)["state_dict"])
    if has_drawn_masks(net):
        recalibrate_batch_norm(
            net, train, batch_size=batch_size, device=hardware.device, progress="settling" if progress else None
        )
    net.eval()
    return history


class GatedLightningModule(L.LightningModule):
    """The training of a gated network, for your own `lightning.Trainer`."""

    def __init__(
        self,
        net: GatedNetwork,
        objective: Objective,
        optimizer: OptimizerConfig,
        hardware: Hardware,
        train: Data,
        val: Data | None,
        *,
        batch_size: int,
        epochs: int,
        seed: int,
    ):
        super().__init__()
        self.net = net
        self.objective = objective
        self.optimizer = optimizer
        self.hardware = hardware
        self.data = {"train": train, "val": val}
        self.batch_size, self.epochs, self.seed = batch_size, epochs, seed
        self.history = History()
        self.meters = nn.ModuleDict(
            {"train_": EpochMetrics(net), "val_": EpochMetrics(net)}
        )  # "train" is a method's name
        self.run: RunDirectory | None = None
        self._suspects: set[str] = set()

    def prepare(self) -> None:
        """Lay the weights out as this machine likes them."""
        if self.hardware.bfloat16() and len(self.net.plan.example_shape) == 3:
            self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def settings(self) -> dict[str, Any]:
        """Return what makes this run this run."""
        return {
            "plan": asdict(self.net.plan),
            "background": self.net.background,
            "layers": [describe(layer) for layer in self.net.layers],
            "data": {part: fingerprint(data) for part, data in self.data.items() if data is not None},
            "objective": asdict(self.objective),
            "optimizer": asdict(self.optimizer),
            "bfloat16": self.hardware.bfloat16(),
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "seed": self.seed,
        }

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the training data, in an order that depends on the seed and the epoch alone."""
        return self._loader("train")

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Return the validation data, if any."""
        return [] if self.data["val"] is None else self._loader("val")

    def _loader(self, part: str) -> DataLoader[Any]:
        training = part == "train"
        source = loader(
            self.data[part],  # type: ignore[arg-type]
            batch_size=self.batch_size,
            shuffle=training,
            workers=self.hardware.workers,
        )
        rank, world = self.global_rank, self.trainer.world_size
        return reproducible(source, self.seed, rank=rank, world=world, training=training)

    def configure_optimizers(self) -> Any:
        """Build the optimizer and its schedule."""
        steps = int(self.trainer.estimated_stepping_batches)
        optimizer, schedule = self.optimizer.build(self.net, steps)
        if schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """Return the loss of a batch."""
        return self._step("train", batch, index)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """Measure a batch."""
        self._step("val", batch, index)

    def _step(self, part: str, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = pair_of(batch)
        if x.ndim == 4 and self.hardware.bfloat16():
            x = x.to(memory_format=torch.channels_last)
        bad = not_finite(x)  # before the network sees it: its running means would be spoilt for ever
        if bad:
            raise TrainingError(
                f"the input has NaN or infinity in samples {bad[:10]} of {part} batch {index} of epoch "
                f"{self.current_epoch + 1}. Clean the data."
            )
        out = self.net(x)
        loss = self.objective(self.net, out, y)
        if not torch.isfinite(loss.total):
            raise TrainingError(_diagnosis(part, self.current_epoch, index, loss._asdict()))
        self.meters[f"{part}_"].update(out, y, loss)  # type: ignore[operator]
        if part == "train":
            self.log("loss", loss.total.detach(), prog_bar=True, logger=False)
        return loss.total

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        """Seed dropout by epoch and batch, so that it drops alike whether or not the run was broken before."""
        torch.manual_seed(hash((self.seed, self.current_epoch, index, self.global_rank)) % 2**63)

    def on_train_epoch_end(self) -> None:
        """Log the epoch; notice what does not work. Lightning validates before this."""
        row = {"epoch": float(self.current_epoch + 1)}
        seen = [part for part in ("train", "val") if self.data[part] is not None]
        for part in seen:
            measured = self.meters[f"{part}_"].compute()  # type: ignore[operator]
            self.meters[f"{part}_"].check_both_kinds()  # type: ignore[operator]
            if part == seen[-1]:
                self._notice(collapse(measured, self.net))
            row |= {f"{part}/{name}": value for name, value in measured.items()}
            self.meters[f"{part}_"].reset()  # type: ignore[operator]
        row |= {f"density/{i}": layer.density for i, layer in enumerate(self.net.layers)}
        self.log_dict({key: value for key, value in row.items() if key != "epoch"}, sync_dist=False)
        for key, short in (("val/accuracy", "accuracy"), ("val/early_stopping", "stopped")):
            if key in row:
                self.log(short, row[key], prog_bar=True, logger=False)
        self.history.epochs.append(row)
        if self.run is not None and self.global_rank == 0:
            self.run.log(self.history.epochs)

    def _notice(self, findings: list[str]) -> None:
        """Warn of what stands in two epochs after another, or in the last; forget what has mended itself."""
        last = self.current_epoch + 1 == self.epochs
        known = {_kind(warning) for warning in self.history.warnings}
        standing = [finding for finding in findings if last or _kind(finding) in self._suspects]
        for finding in standing:
            if _kind(finding) not in known and self.global_rank == 0:
                warnings.warn(finding, CollapseWarning, stacklevel=2)
        self.history.warnings = standing
        self._suspects = {_kind(finding) for finding in findings}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the history with the weights."""
        checkpoint["history"] = {"epochs": self.history.epochs, "warnings": self.history.warnings}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the history up again."""
        self.history.epochs, self.history.warnings = (
            list(checkpoint["history"]["epochs"]),
            list(checkpoint["history"]["warnings"]),
        )


def _kind(finding: str) -> str:
    """Return which gate or mask a finding speaks of, and what is wrong with it, without the figures."""
    return finding.split(":")[0]


def _check_data(net: GatedNetwork, train: Data, val: Data | None) -> None:
    if not net.active():
        return
    for part in (train, val):
        known = None if part is None else cheap_labels(part)
        if known is not None and len(known):
            check_labels(known, net.plan.classes)
            check_both_kinds(net.positive(known), "train")


def _diagnosis(part: str, epoch: int, index: int, terms: dict[str, Tensor]) -> str:
    values = ", ".join(f"{name} = {value.item():g}" for name, value in terms.items())
    where = f"the loss is not finite in {part} batch {index} of epoch {epoch + 1} ({values})"
    return f"{where}, and the input is finite: the training diverged. Lower the rate, or set precision to float32."


class _Bar(RichProgressBar):
    """A progress bar of what is learnt: the names of the log files are left out."""

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        shown = super().get_metrics(trainer, pl_module)
        return {name: value for name, value in shown.items() if name != "v_num"}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning from telling what nobody asked; errors and our own warnings come through."""
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
