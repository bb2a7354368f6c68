"""ResNeXt (Xie et al., arXiv:1611.05431): a ResNet with grouped convolutions.

ResNeXt-101 64x4d is the paper's network for ImageNet: 64 groups of at least 4 channels, 83.5 M parameters and 15.5 G
MACs for an image of 224x224. It can be cut between its stages (``layer1`` ...) or between their bottlenecks
(``layer3.11``). ``resnext8`` is a small network of eight such blocks (blocknet.py).
"""

from torch import Tensor, nn

from penstock.models.blocknet import IMAGES, SERIES, BlockNet, Layers, Residual, conv_norm

GROUPS = 64
"""Groups of a 3x3 convolution in ResNeXt-101 (the "64" of 64x4d)."""

GROUP_WIDTH = 4
"""Channels per group in the small networks (the "4d")."""


def resnext8(in_channels: int = 1, classes: int = 6, width: int = 16) -> BlockNet:
    """Build eight ResNeXt blocks and two linear blocks for images.

    Args:
        in_channels: channels of the image.
        classes: classes of the output, background included.
        width: channels after the first block, a multiple of 4.

    >>> import torch
    >>> resnext8().eval()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 6])
    """
    return BlockNet(IMAGES, grouped_block, in_channels, classes, width, multiple_of=GROUP_WIDTH)


def resnext8_1d(in_channels: int, classes: int, width: int = 16) -> BlockNet:
    """Build the same network for time series."""
    return BlockNet(SERIES, grouped_block, in_channels, classes, width, multiple_of=GROUP_WIDTH)


def grouped_block(layers: Layers, in_channels: int, out_channels: int, stride: int) -> Residual:
    """Build a bottleneck with groups of 4 channels."""
    return bottleneck(layers, in_channels, out_channels, stride, groups=out_channels // GROUP_WIDTH)


def bottleneck(layers: Layers, in_channels: int, out_channels: int, stride: int, groups: int) -> Residual:
    """Build a residual block of three convolutions: pointwise, grouped, pointwise.

    As in 64x4d, the grouped convolution has as many channels as the output.
    """
    body = nn.Sequential(
        *conv_norm(layers, in_channels, out_channels, 1),
        nn.ReLU(),
        *conv_norm(layers, out_channels, out_channels, 3, stride, groups),
        nn.ReLU(),
        *conv_norm(layers, out_channels, out_channels, 1),
    )
    return Residual(layers, body, in_channels, out_channels, stride)


def resnext101_64x4d(classes: int = 1000, in_channels: int = 3) -> "ResNeXt":
    """Build ResNeXt-101 64x4d with random weights.

    Args:
        classes: classes of the output, background included (501 under the paper's mapping of ImageNet).
        in_channels: channels of the image.

    Shapes:
        (batch, in_channels, height, width) -> logits: (batch, classes)
    """
    return ResNeXt((3, 4, 23, 3), classes, in_channels)


class ResNeXt(nn.Module):
    """A stem, four stages of bottlenecks and a head.

    Attributes:
        stem: 64 channels at a quarter of the resolution.
        layer1, layer2, layer3, layer4: 256, 512, 1024, 2048 channels; each but the first halves the resolution.
        head: global average pooling and a linear layer.
    """

    def __init__(self, depths: tuple[int, int, int, int], classes: int, in_channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.layer1 = _stage(depths[0], 64, 256, stride=1)
        self.layer2 = _stage(depths[1], 256, 512, stride=2)
        self.layer3 = _stage(depths[2], 512, 1024, stride=2)
        self.layer4 = _stage(depths[3], 1024, 2048, stride=2)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        logits: Tensor = self.head(x)
        return logits


def _stage(depth: int, in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    """Build ``depth`` bottlenecks; the first one changes the shape."""
    first = bottleneck(IMAGES, in_channels, out_channels, stride, GROUPS)
    others = (bottleneck(IMAGES, out_channels, out_channels, 1, GROUPS) for _ in range(depth - 1))
    return nn.Sequential(first, *others)
