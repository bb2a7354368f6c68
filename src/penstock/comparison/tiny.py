"""A small network of its own to stand in front of a large one: what many would build instead of a gate."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache, partial
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from penstock.errors import LayerError
from penstock.gating.layers.head import CONVOLUTIONS
from penstock.gating.surgery.profile import measure_stages

SHARES = (0.025, 0.05, 0.1)
"""Of the large network's multiply-accumulates: one small network is tried for each, the last share is the limit."""
DEPTH = 4
WIDEST = 1024


class TinyConvolutions(nn.Sequential):
    """Four strided convolutions, for images and series: (batch, channels, *size) -> logits (batch, classes)."""

    def __init__(self, sample: tuple[int, ...], classes: int, width: int):
        convolution, norm = CONVOLUTIONS[len(sample) - 1]
        sizes = [sample[0], *(width * 2**i for i in range(DEPTH))]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [convolution(before, after, 3, 2, 1, bias=False), norm(after), nn.ReLU()]
        mean = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[len(sample) - 2](1)
        super().__init__(*layers, mean, nn.Flatten(), nn.Linear(sizes[-1], classes))


class TinyLinear(nn.Sequential):
    """One hidden layer on the flattened input: (batch, *sample) -> logits (batch, classes)."""

    def __init__(self, sample: tuple[int, ...], classes: int, width: int):
        hidden = nn.Linear(prod(sample), width, bias=False)
        super().__init__(nn.Flatten(), hidden, nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, classes))


def tiny(sample: tuple[int, ...], classes: int, width: int) -> nn.Module:
    """Return a small network for inputs of this shape: convolutions for (C, T) and (C, H, W), else one hidden layer."""
    return (TinyConvolutions if len(sample) - 1 in CONVOLUTIONS else TinyLinear)(sample, classes, width)


def widths(sample: tuple[int, ...], classes: int, macs: int) -> list[int]:
    """Return the widths to try: for each of `SHARES`, the widest network within that share of ``macs``.

    >>> widths((2, 64), classes=3, macs=63_776)
    [1, 2]
    """
    measured = partial(macs_of, sample, classes)
    found = {bisect_right(range(1, WIDEST + 1), share * macs, key=measured) for share in SHARES}
    return sorted(found - {0})


@cache
def macs_of(sample: tuple[int, ...], classes: int, width: int) -> int:
    """Return the multiply-accumulates of a small network for one sample."""
    with torch.device("meta"):  # shapes alone: no weights are drawn, and nothing is computed
        _, (macs,) = measure_stages([tiny(sample, classes, width)], torch.zeros(2, *sample))
    return macs


def check_input(example: Tensor) -> None:
    """Refuse inputs that are no measurements: a small network for tokens would need an embedding of its own."""
    if not example.is_floating_point():
        raise LayerError(f"there is no small network for inputs of {example.dtype}, only for floats.")
