"""A task that a small network learns in a second, for tests of training."""

import torch
from torch import nn

import penstock as ps
from helpers.zoo import sequential


def quiet(**options):
    """Return a FitConfig without a progress bar, in float32 unless told otherwise."""
    return ps.FitConfig(**{"progress": False, "hardware": ps.Hardware(precision="float32")} | options)


def task(n=512, seed=0):
    """Background below a plane; three classes above it."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=draw)
    y = torch.where(x[:, 0] < 0, 0, 1 + (x[:, 1] > 0).long() + (x[:, 2] > 0).long())
    return x, y


def network(seed=0, at=0.5, **choices):
    torch.manual_seed(seed)
    return ps.gate(sequential(), torch.zeros(2, 6), at=at, **choices)


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def plain_layers():
    """No batch norm and no dropout, which look at one process's share of a batch alone."""
    torch.manual_seed(0)
    return ps.gate(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)), torch.zeros(2, 6), at=0.5)


def pretrained(seed=0):
    """A plain network, already trained for the task."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, y = task(512)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()
