"""Train a gated network in your own lightning.Trainer, with your own callbacks, logger and optimizer.

Run it: python examples/lightning_trainer.py
"""

import functools

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import penstock as ps

torch.manual_seed(0)


def draw(n: int) -> TensorDataset:
    """Background is a point left of a plane; the classes 1 and 2 lie right of it."""
    x = torch.randn(n, 8)
    return TensorDataset(x, torch.where(x[:, 0] < 0, 0, 1 + (x[:, 1] > 0).long()))


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
net = ps.gate(model, torch.zeros(2, 8), at=0.3)

module = ps.GatedLightningModule(
    net,
    ps.Objective(alpha=0.5, beta=0.1),
    functools.partial(torch.optim.AdamW, lr=0.01),  # any torch optimizer, or a ps.OptimizerConfig
)
trainer = lightning.Trainer(
    max_epochs=8,
    accelerator="cpu",
    logger=CSVLogger("runs"),
    callbacks=[EarlyStopping("val/loss", patience=2)],
    enable_progress_bar=False,
)
trainer.fit(module, DataLoader(draw(2000), batch_size=64, shuffle=True), DataLoader(draw(500), batch_size=64))
net.eval()

ps.calibrate(net, draw(2000), max_positive_loss=0.01)
print(ps.evaluate(net, draw(2000)))
