"""The paper's Inception, for images and for time series: 8 inception blocks and 2 linear blocks (eight_blocks.py).

An inception block looks at its input through windows of several widths at once and puts what they see side by side
(Szegedy et al., arXiv:1409.4842; the wide window as two narrow ones and the batch norms as in arXiv:1512.00567).
"""

import torch
from torch import Tensor, nn

from penstock.models.eight_blocks import IMAGES, SERIES, BlockNet, Layers, conv_norm

BRANCHES = 4
"""Of a block, side by side; each gives as many of its channels."""


def inception8(in_channels: int = 1, classes: int = 6, width: int = 16) -> BlockNet:
    """Build the network for images.

    Args:
        in_channels: channels of the image.
        classes: classes of the output, background included.
        width: channels after the first block, a multiple of 4: each of the four branches gives a quarter.

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
    """Four branches side by side: windows of width 1, 3 and 5, and the maximum over a window of 3.

    Shapes:
        (batch, in_channels, *size) -> (batch, out_channels, *size / stride)
    """

    def __init__(self, layers: Layers, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        quarter = out_channels // BRANCHES
        narrow = [in_channels, quarter, 1]

        def branch(*convolutions: list[int]) -> list[nn.Module]:
            made = [[*conv_norm(layers, *sizes), nn.ReLU()] for sizes in convolutions]
            return [layer for layers_ in made for layer in layers_]

        self.point = nn.Sequential(*branch([*narrow, stride]))
        self.three = nn.Sequential(*branch(narrow, [quarter, quarter, 3, stride]))
        self.five = nn.Sequential(*branch(narrow, [quarter, quarter, 3], [quarter, quarter, 3, stride]))
        self.peak = nn.Sequential(layers.max_pool(3, stride=stride, padding=1), *branch(narrow))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.point(x), self.three(x), self.five(x), self.peak(x)], dim=1)
