"""A small classification task that trains in no time: noise, or one of two tones in it."""

import torch

from penstock.datasets.splits import Labelled, Splits

CLASSES = ("background", "low", "high")


def tones(n: int, seed: int) -> Labelled:
    """Return ``n`` samples of 32 values and their labels."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=generator)
    time_ = torch.arange(32) / 32
    wave = torch.stack([torch.zeros(32), (12 * time_).sin(), (40 * time_).sin()])
    x = 2 * wave[y] + 0.7 * torch.randn(n, 32, generator=generator)
    return Labelled(x.unsqueeze(1), y)


def tone_splits(train: int = 384, test: int = 300) -> Splits:
    """Return training and test samples; a task takes validation samples from the training part."""
    return Splits(tones(train, 0), tones(test, 1), CLASSES)
