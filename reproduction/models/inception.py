"""The paper's Inception, for images and time series: 8 inception blocks and 2 linear blocks (blocknet.py).

An inception block concatenates convolutions of several kernel sizes (Szegedy et al., arXiv:1409.4842). As in
arXiv:1512.00567, a 5-wide convolution is two 3-wide ones, and convolutions are followed by batch norm.
"""

import torch
from torch import Tensor, nn

from penstock.models.blocknet import IMAGES, SERIES, BlockNet, Layers, conv_norm

BRANCHES = 4
"""Parallel branches of a block; each computes the same number of channels."""


def inception8(in_channels: int = 1, classes: int = 6, width: int = 16) -> BlockNet:
    """Build the network for images.

    Args:
        in_channels: channels of the image.
        classes: classes of the output, background included.
        width: channels after the first block; a multiple of 4, a quarter per branch.

    >>> inception8().eval()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 6])
    """
    return BlockNet(IMAGES, InceptionBlock, in_channels, classes, width, multiple_of=BRANCHES)


def inception8_1d(in_channels: int, classes: int, width: int = 16) -> BlockNet:
    """Build the network for time series.

    >>> inception8_1d(40, classes=11).eval()(torch.zeros(2, 40, 49)).shape
    torch.Size([2, 11])
    """
    return BlockNet(SERIES, InceptionBlock, in_channels, classes, width, multiple_of=BRANCHES)


class InceptionBlock(nn.Module):
    """Four parallel branches: convolutions of size 1, 3 and 5, and max pooling of size 3.

    Shapes:
        (batch, in_channels, *size) -> (batch, out_channels, *size / stride)
    """

    def __init__(self, layers: Layers, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        quarter = out_channels // BRANCHES
        pointwise = [in_channels, quarter, 1]

        def branch(*convolutions: list[int]) -> list[nn.Module]:
            return [layer for sizes in convolutions for layer in (*conv_norm(layers, *sizes), nn.ReLU())]

        self.point = nn.Sequential(*branch([*pointwise, stride]))
        self.three = nn.Sequential(*branch(pointwise, [quarter, quarter, 3, stride]))
        self.five = nn.Sequential(*branch(pointwise, [quarter, quarter, 3], [quarter, quarter, 3, stride]))
        self.peak = nn.Sequential(layers.max_pool(3, stride=stride, padding=1), *branch(pointwise))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.point(x), self.three(x), self.five(x), self.peak(x)], dim=1)
