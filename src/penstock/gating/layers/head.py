"""What a gate computes before its score: from features to a few hidden units.

The heads must survive the paper's learning rate of 0.01. A narrow ReLU layer on flattened features did not: its units
died and it stopped everything. Here each layer is normalised before its activation, so no step, however large, can
push all units to one side (docs/decisions/0004-gate-head.md, docs/decisions/0020-convolutional-heads.md).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from math import inf, prod
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from penstock.errors import LayerError
from penstock.gating.layers.config import Granularity, HeadKind, LayerConfig
from penstock.gating.layers.mask_layout import MASK_LAYOUTS
from penstock.gating.layers.transform import transform_macs

UNITS = 16
CLASS_LOSS_WEIGHT = 0.3
KERNEL, STRIDES = 3, (2, 1)
CONV_LAYERS = {"conv": 1, "conv2": 2}
CONV_WIDTHS, GATE_SHARE = (8, 64), 0.025
"""Channels of the first convolution, and the share of the network's multiply-accumulates that a gate may take."""
TRANSFORM_SHARE = 0.05
"""The share of the network's multiply-accumulates that a change of coordinates may take, each way."""
CONVOLUTIONS = {
    1: (nn.Conv1d, nn.BatchNorm1d),
    2: (nn.Conv2d, nn.BatchNorm2d),
    3: (nn.Conv3d, nn.BatchNorm3d),
}
"""By the number of axes after the channels."""


class LinearHead(nn.Module):
    """One linear layer on one value per mask dimension: the smallest.

    Its weights shrink with the mask: given ``kept``, it reads packed features and computes the same as from the masked
    ones.

    Shapes:
        x: (batch, *feature), or packed -> (batch, width)
    """

    reads_unmasked = False

    def __init__(self, feature: tuple[int, ...], granularity: Granularity = "element", width: int = UNITS):
        super().__init__()
        self.granularity, self.width = granularity, width
        self.squeeze = nn.Linear(prod(MASK_LAYOUTS[granularity].mask_shape(feature)), width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        weight = self.squeeze.weight if kept is None else self.squeeze.weight.index_select(1, kept)
        pooled = MASK_LAYOUTS[self.granularity].pool(x)  # (batch, units)
        if not torch.is_autocast_enabled(x.device.type):  # autocast casts by itself
            pooled = pooled.to(weight.dtype)
        return F.silu(self.norm(F.linear(pooled, weight, self.squeeze.bias)))

    def shrink(self, kept: Tensor) -> LinearHead:
        """Return the head for packed features, with the parameters of the kept dimensions only."""
        small = nn.utils.skip_init(nn.Linear, len(kept), self.width).to(self.squeeze.weight)
        small.load_state_dict({"weight": self.squeeze.weight.detach().index_select(1, kept), "bias": self.squeeze.bias})
        return copy.deepcopy(self, {id(self.squeeze): small})  # the copy has `small` as squeeze

    def macs(self, kept: int) -> int:
        """Return the multiply-accumulates of one sample when ``kept`` dimensions are read."""
        return kept * self.width


class ConvHead(nn.Module):
    """A strided convolution, perhaps another one, and mean and maximum, for images (C, H, W) and series (C, T).

    The maximum says that something is anywhere at all, the mean how much of it. It runs where the features are, before
    the mask, so it reads all of them whatever crosses the cut.

    Shapes:
        x: (batch, *feature) -> (batch, width); the second convolution doubles the channels.
    """

    reads_unmasked = True

    def __init__(self, feature: tuple[int, ...], channels: int, layers: int = 2):
        super().__init__()
        convolution, norm = CONVOLUTIONS[len(feature) - 1]
        sizes = _channels(feature, channels, layers)
        blocks = [
            nn.Sequential(
                convolution(before, after, KERNEL, stride, padding=KERNEL // 2, bias=False), norm(after), nn.ReLU()
            )
            for (before, after), stride in zip(pairwise(sizes), STRIDES, strict=False)
        ]
        self.blocks, self.width = nn.Sequential(*blocks), 2 * sizes[-1]
        self._macs = conv_macs(feature, channels, layers)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(x).flatten(2)
        return torch.cat([x.mean(2), x.amax(2)], 1)

    def macs(self, kept: int) -> int:
        return self._macs


def conv_macs(feature: tuple[int, ...], channels: int, layers: int) -> int:
    """Return the multiply-accumulates of a `ConvHead`, without its score.

    >>> conv_macs((40, 12, 12), channels=40, layers=2)
    1555200
    """
    extent = [-(-size // STRIDES[0]) for size in feature[1:]]  # the second convolution has stride 1
    pairs = pairwise(_channels(feature, channels, layers))
    return prod(extent) * KERNEL ** len(extent) * sum(before * after for before, after in pairs)


def _channels(feature: tuple[int, ...], channels: int, layers: int) -> list[int]:
    return [feature[0], *(channels * 2**i for i in range(layers))]


class AttentionHead(nn.Module):
    """A mean over tokens (T, D), weighted by how much each says, and a linear layer.

    Shapes:
        x: (batch, T, D) -> (batch, width)
    """

    reads_unmasked = True

    def __init__(self, feature: tuple[int, ...], width: int = UNITS):
        super().__init__()
        (self.tokens, dimensions), self.width = feature, width
        self.tokens_norm, self.weigh = nn.LayerNorm(dimensions), nn.Linear(dimensions, 1)
        self.squeeze, self.norm = nn.Linear(dimensions, width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens_norm(x)
        weights = self.weigh(x).softmax(1)  # (batch, T, 1)
        return F.silu(self.norm(self.squeeze((weights * x).sum(1))))

    def macs(self, kept: int) -> int:
        dimensions = self.squeeze.in_features
        return 2 * self.tokens * dimensions + dimensions * self.width


Head: TypeAlias = LinearHead | ConvHead | AttentionHead


def resolved(
    config: LayerConfig, feature: tuple[int, ...], classes: int | None = None, network_macs: int | None = None
) -> LayerConfig:
    """Return the configuration with all that is automatic decided.

    Args:
        feature: the shape of the features.
        classes: of the network, if known.
        network_macs: the multiply-accumulates of the network, of which a gate's convolutions may take `GATE_SHARE`
            and a change of coordinates `TRANSFORM_SHARE`.

    >>> resolved(LayerConfig(), (16, 14, 14)).head, resolved(LayerConfig(), (64,)).head
    ('conv2', 'linear')
    """
    config = _with_transform(config, feature, network_macs)
    if not config.has_gate:
        return config
    axes = len(feature) - 1
    head = _head(config, axes)
    if (head.startswith("conv") and axes not in CONVOLUTIONS) or (head == "attention" and axes != 1):
        expected = "(T, D)" if head == "attention" else "(C, T), (C, H, W) or (C, D, H, W)"
        raise LayerError(f"a {head!r} head needs features of shape {expected}, got {feature}: use head='auto'.")
    width, weight = config.gate_width, config.class_loss_weight
    if width is None:
        width = _conv_width(feature, CONV_LAYERS[head], network_macs) if head in CONV_LAYERS else UNITS
    if weight is None:
        weight = 0.0 if head == "linear" or classes is None or classes < 3 else CLASS_LOSS_WEIGHT
    return replace(config, head=head, gate_width=width, class_loss_weight=weight)


def _with_transform(config: LayerConfig, feature: tuple[int, ...], network_macs: int | None) -> LayerConfig:
    axes = len(feature) - 1
    if config.transform == "auto" and config.has_compression:
        possible = config.keep is not None and config.granularity == "element" and config.head != "attention"
        possible = possible and axes in CONVOLUTIONS
        cheap = network_macs is None or not possible or transform_macs(feature) <= TRANSFORM_SHARE * network_macs
        config = replace(config, transform="cosine" if possible and cheap else "none")
    if config.transform == "cosine" and axes not in CONVOLUTIONS:
        raise LayerError(f"transform='cosine' needs features (C, T), (C, H, W) or (C, D, H, W), got {feature}.")
    return config


def _head(config: LayerConfig, axes: int) -> HeadKind:
    if config.head != "auto":
        return config.head
    if config.gate_input == "all" or axes not in CONVOLUTIONS:
        return "linear"
    return "attention" if config.granularity == "feature" and axes == 1 else "conv2"


def _conv_width(feature: tuple[int, ...], layers: int, network_macs: int | None) -> int:
    """Return as many channels as the features have, or fewer if that costs too much."""
    least, most = CONV_WIDTHS
    width = min(max(feature[0], least), most)
    limit = inf if network_macs is None else GATE_SHARE * network_macs
    while width > least and conv_macs(feature, width, layers) > limit:
        width -= 1
    return width


def build_head(feature: tuple[int, ...], config: LayerConfig) -> Head:
    """Return a new head for a resolved configuration."""
    assert config.gate_width is not None
    if config.head == "linear":
        return LinearHead(feature, gate_granularity(config), config.gate_width)
    if config.head == "attention":
        return AttentionHead(feature, config.gate_width)
    return ConvHead(feature, config.gate_width, CONV_LAYERS[config.head])


def gate_granularity(config: LayerConfig) -> Granularity:
    """Return what one input of a linear head covers."""
    return "element" if config.gate_input == "all" else config.granularity
