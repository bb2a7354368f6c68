"""The Lightning module of a gated network: steps, epoch metrics, optimizer; for `fit` and for your own Trainer."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from penstock.datasets.loading import pair_of
from penstock.errors import TrainingError
from penstock.gating.network import GatedNetwork, not_finite
from penstock.gating.objective import Objective
from penstock.gating.surgery.recorder import logits_of
from penstock.training.epoch_metrics import EpochMetrics, LossRise, collapse
from penstock.training.optimizer import OptimizerConfig, OptimizerFactory
from penstock.training.thinning import thin


class CollapseWarning(UserWarning):
    """A gate or a mask has collapsed: it separates nothing, stops everything, passes everything, or keeps nothing.

    Also the network itself, if its prediction loss rises suddenly.
    """


@dataclass
class History:
    """Metrics of a training run.

    Attributes:
        epochs: one row of metrics per epoch.
        warnings: collapsed gates and masks, as of the last epoch.
        best: the checkpoint with the lowest validation loss, if the run has a folder.
        last: the checkpoint of the last epoch.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    best: Path | None = None
    last: Path | None = None


class GatedLightningModule(L.LightningModule):
    """Train a gated network in your own `lightning.Trainer`.

        module = GatedLightningModule(net, Objective(alpha=0.5, beta=0.55))
        lightning.Trainer(max_epochs=10).fit(module, train_loader, val_loader)
        net.eval()

    Each epoch logs ``train/…``, ``val/…`` and ``density/…`` (loss and its terms, accuracy, early stopping, AUC of each
    gate), so that callbacks can monitor for example ``val/loss``. When training starts, thresholds go back to a
    probability of ½ and a network in evaluation mode is put into training mode. If masks are drawn, call
    `penstock.training.recalibration.recalibrate_batch_norm` afterwards, as `fit` does.

    Args:
        net: trained in place.
        objective: the loss to minimize.
        optimizer: an OptimizerConfig, or a factory such as ``functools.partial(torch.optim.SGD, lr=0.1)`` that takes
            the parameters and returns a torch optimizer.
        teacher: a network for the same inputs and classes, such as ``net`` before it was gated, to distil from
            (`Objective.distillation`); it is not trained.
    """

    teacher: nn.Module | None

    def __init__(
        self,
        net: GatedNetwork,
        objective: Objective = Objective(),
        optimizer: OptimizerConfig | OptimizerFactory = OptimizerConfig(),
        *,
        teacher: nn.Module | None = None,
    ):
        super().__init__()
        object.__setattr__(self, "teacher", teacher)  # not a submodule: neither trained nor saved
        self._loss_rise, self._rise = LossRise(), list[str]()
        self.net, self.objective = net, objective
        self.optimizer = optimizer.for_network(net, teacher) if isinstance(optimizer, OptimizerConfig) else optimizer
        self.history = History()
        self.train_metrics, self.val_metrics = EpochMetrics(net), EpochMetrics(net)
        self._val_row: dict[str, float] = {}
        self._suspects: set[str] = set()

    def setup(self, stage: str) -> None:
        """Reset the thresholds, which were calibrated for other weights, and switch to training mode."""
        if self.teacher is not None:
            self.teacher.to(self.device).eval()
        if stage == "fit":
            self.net.thresholds = [None if layer.gate is None else 0.0 for layer in self.net.layers]
            if not self.net.training:  # else what the user froze with .eval() stays frozen
                self.net.train()

    def configure_optimizers(self) -> Any:
        if not isinstance(self.optimizer, OptimizerConfig):
            return self.optimizer(self.net.parameters())
        steps = self.trainer.estimated_stepping_batches
        if math.isinf(steps) and self.optimizer.schedule != "constant":
            raise TrainingError(
                f"schedule {self.optimizer.schedule!r} needs a known number of steps: set the trainer's max_epochs or "
                "max_steps, or use schedule='constant'."
            )
        optimizer, schedule = self.optimizer.build(self.net, 0 if math.isinf(steps) else int(steps))
        if schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        """Thin masks with ``keep``."""
        if thin(self.net, self.global_step / self.trainer.estimated_stepping_batches):
            self._loss_rise = LossRise()  # what is dropped costs something: it is not the rate

    def on_train_end(self) -> None:
        """Leave masks with exactly ``keep``, however few steps there were."""
        thin(self.net, 1.0)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        loss = self._step("train", batch, index)
        self.log("loss", loss.detach(), prog_bar=True, logger=False)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self._step("val", batch, index)

    def _step(self, part: str, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = pair_of(batch)
        where = f"{part} batch {index}, epoch {self.current_epoch + 1}"
        bad = not_finite(x)  # checked before the forward pass, which would corrupt the running statistics
        if bad:
            raise TrainingError(f"NaN or infinity in samples {bad[:10]} of {where}: clean the data.")
        out = self.net(x)
        loss = self.objective(self.net, out, y, self._taught(x))
        if not torch.isfinite(loss.total):
            values = ", ".join(f"{name} = {term.item():g}" for name, term in loss._asdict().items())
            raise TrainingError(
                f"training diverged: the loss is not finite in {where} ({values}), although the input is. Lower the "
                "learning rate, or set precision to float32."
            )
        self._metrics(part).update(out, y, loss)
        if part == "train":
            self._watch(loss.prediction.item(), where)
        return loss.total

    def _watch(self, loss: float, where: str) -> None:
        """Warn, once, if the prediction loss rises suddenly."""
        rise = self._loss_rise.add(loss)
        if rise is not None and not self._rise:
            self._rise.append(f"{rise} ({where}).")
            if self.global_rank == 0:
                warnings.warn(self._rise[0], CollapseWarning, stacklevel=2)

    @torch.no_grad()
    def _taught(self, x: Tensor) -> Tensor | None:
        """Return the teacher's logits."""
        return None if self.teacher is None else logits_of(self.teacher(x))

    def on_validation_epoch_start(self) -> None:
        """Reset the counts of an earlier validation of this epoch, or of Lightning's sanity check."""
        self.val_metrics.reset()

    def on_validation_epoch_end(self) -> None:
        if not self.trainer.sanity_checking:
            self._val_row = self._measured("val")
            self.log_dict(self._val_row, sync_dist=False)

    def on_train_epoch_end(self) -> None:
        """Log the epoch and warn about collapsed gates and masks. Lightning validates before this hook."""
        row = {"epoch": float(self.current_epoch + 1)} | self._measured("train") | self._val_row
        prefix = "val/" if self._val_row else "train/"
        metrics = {key.removeprefix(prefix): value for key, value in row.items() if key.startswith(prefix)}
        self._warn_about(collapse(metrics, self.net))
        row |= {f"density/{i}": layer.density for i, layer in enumerate(self.net.layers)}
        logged = {key: value for key, value in row.items() if key != "epoch" and key not in self._val_row}
        self.log_dict(logged, sync_dist=False)
        for key, short in (("val/accuracy", "accuracy"), ("val/early_stopping", "stopped")):
            if key in row:
                self.log(short, row[key], prog_bar=True, logger=False)
        self._val_row = {}
        self.history.epochs.append(row)

    def _measured(self, part: str) -> dict[str, float]:
        """Return the metrics of an epoch, named ``part/…``, and reset them."""
        metrics = self._metrics(part)
        row = {f"{part}/{name}": value for name, value in metrics.compute().items()}
        metrics.check_both_kinds()
        metrics.reset()
        return row

    def _metrics(self, part: str) -> EpochMetrics:
        return self.train_metrics if part == "train" else self.val_metrics

    def _warn_about(self, findings: list[str]) -> None:
        """Warn once about each finding of two consecutive epochs or of the last one; keep those still true."""
        last = self.current_epoch + 1 == self.trainer.max_epochs
        known = {_kind(warning) for warning in self.history.warnings}
        standing = [finding for finding in findings if last or _kind(finding) in self._suspects]
        for finding in standing:
            if _kind(finding) not in known and self.global_rank == 0:
                warnings.warn(finding, CollapseWarning, stacklevel=2)
        self.history.warnings = [*self._rise, *standing]
        self._suspects = {_kind(finding) for finding in findings}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["history"] = {"epochs": self.history.epochs, "warnings": self.history.warnings}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.history = History(**checkpoint["history"])


def _kind(finding: str) -> str:
    """Return the gate or mask of a finding and its problem, without the numbers."""
    return finding.split(":")[0]
