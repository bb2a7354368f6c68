"""The paper's ResNet: 8 residual blocks and 2 linear blocks, for images and for time series.

The paper counts depth in blocks: ten of them, and a gate after block i stands at i * 10 % of the depth
(section 4, figure "Model Architectures"). So there is no stem convolution here: the first residual block
takes the raw input, and ``net.blocks[i - 1]`` is the paper's block i.

One network serves images and time series. The two differ in the layers they are made of and in nothing else;
``IMAGES`` and ``SERIES`` hold these layers.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

DEPTH = 8
"""Residual blocks in a network."""


@dataclass(frozen=True)
class Layers:
    """The layers that know how many dimensions the input has besides batch and channels."""

    conv: Callable[..., nn.Module]
    norm: Callable[[int], nn.Module]
    pool: Callable[[int], nn.Module]


IMAGES = Layers(nn.Conv2d, nn.BatchNorm2d, nn.AdaptiveAvgPool2d)
SERIES = Layers(nn.Conv1d, nn.BatchNorm1d, nn.AdaptiveAvgPool1d)


def resnet8(in_channels: int = 1, classes: int = 6, width: int = 16) -> "BlockNet":
    """Build the paper's ResNet for images.

    Args:
        in_channels: channels of the image: 1 for Fashion-MNIST, 3 for CIFAR-10.
        classes: classes of the output, background included.
        width: channels after the first block; they double with blocks 3, 5 and 7, which halve the image.

    Shapes:
        (batch, in_channels, height, width) -> logits: (batch, classes)

    >>> import torch
    >>> net = resnet8().eval()
    >>> net(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 6])
    >>> net.blocks[:4](torch.zeros(2, 1, 28, 28)).shape  # what a gate at 40 % depth sees
    torch.Size([2, 32, 14, 14])
    """
    return BlockNet(IMAGES, in_channels, classes, width)


def resnet8_1d(in_channels: int, classes: int, width: int = 16) -> "BlockNet":
    """Build the same network for time series: of inertial sensors, of audio features.

    Shapes:
        (batch, in_channels, time) -> logits: (batch, classes)

    >>> import torch
    >>> resnet8_1d(6, classes=4).eval()(torch.zeros(2, 6, 100)).shape
    torch.Size([2, 4])
    """
    return BlockNet(SERIES, in_channels, classes, width)


class BlockNet(nn.Module):
    """Eight residual blocks, then two linear blocks.

    Attributes:
        blocks: the eight residual blocks, two at each of four resolutions.
        hidden: the first linear block: global average, linear, ReLU.
        head: the second one: linear, to the logits.
    """

    def __init__(self, layers: Layers, in_channels: int, classes: int, width: int) -> None:
        super().__init__()
        outs = [width * 2 ** (i // 2) for i in range(DEPTH)]  # w w 2w 2w 4w 4w 8w 8w
        ins = [in_channels, *outs[:-1]]
        strides = [2 if i in (2, 4, 6) else 1 for i in range(DEPTH)]
        self.blocks = nn.Sequential(*map(BasicBlock, [layers] * DEPTH, ins, outs, strides))
        self.hidden = nn.Sequential(layers.pool(1), nn.Flatten(), nn.Linear(outs[-1], outs[-1]), nn.ReLU())
        self.head = nn.Linear(outs[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(x)  # (batch, in_channels, *size) -> (batch, 8 * width, *size / 8)
        x = self.hidden(x)  # -> (batch, 8 * width)
        logits: Tensor = self.head(x)  # -> (batch, classes)
        return logits


class BasicBlock(nn.Module):
    """Add two 3-wide convolutions to their own input: ReLU(body(x) + skip(x)).

    The skip is the identity where the shapes allow it, else a convolution of width 1.
    """

    def __init__(self, layers: Layers, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            layers.conv(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
            layers.norm(out_channels),
            nn.ReLU(),
            layers.conv(out_channels, out_channels, 3, padding=1, bias=False),
            layers.norm(out_channels),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.skip = nn.Sequential(
                layers.conv(in_channels, out_channels, 1, stride=stride, bias=False),
                layers.norm(out_channels),
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(x) + self.skip(x))
        return out
