"""A task with obvious classes that a small network of convolutions learns in a moment, for tests of comparisons."""

import torch
from torch import nn

from penstock.comparison.config import CompareConfig


def network():
    return nn.Sequential(
        nn.Sequential(nn.Conv1d(2, 8, 5, stride=2), nn.BatchNorm1d(8), nn.ReLU()),
        nn.Sequential(nn.Conv1d(8, 128, 5, stride=2), nn.BatchNorm1d(128), nn.ReLU()),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(128, 3),
    )


def draw(samples, seed):
    """Return noise; in positives one channel has a bump."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (samples,), generator=generator)
    x = torch.randn(samples, 2, 32, generator=generator)
    x[y == 1, 0, 8:20] += 1.5
    x[y == 2, 1, 8:20] += 1.5
    return x, y


PARTS = draw(300, 1), draw(300, 2), draw(300, 3)


def config(folder=None, **choices):
    quick = {"epochs": 2, "batch_size": 100, "seeds": 1, "progress": False, "folder": folder}
    return CompareConfig(**quick | choices)
