"""The paper's small networks: 8 convolution blocks and 2 linear blocks, for images and for time series.

The paper counts depth in blocks: there are ten, and a gate after block i is at i * 10 % of the depth (section 4, figure
"Model Architectures"). So there is no stem convolution: ``net.blocks[i - 1]`` is the paper's block i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor, nn

from penstock.errors import ShapeError

DEPTH = 8  # convolution blocks
LINEAR_BLOCKS = 2  # after them


@dataclass(frozen=True)
class Layers:
    """The layers that differ between images and time series."""

    conv: Callable[..., nn.Module]
    norm: Callable[[int], nn.Module]
    max_pool: Callable[..., nn.Module]
    mean: Callable[[int], nn.Module]


IMAGES = Layers(nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d)
SERIES = Layers(nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AdaptiveAvgPool1d)

Block: TypeAlias = Callable[[Layers, int, int, int], nn.Module]
"""Builds a block from the layers, the input and output channels, and the stride."""


class BlockNet(nn.Module):
    """Eight blocks, then two linear blocks.

    Channels double with blocks 3, 5 and 7, which halve the image or the series.

    Attributes:
        blocks: the eight blocks, two at each of four resolutions.
        hidden: the first linear block: global average, linear, ReLU.
        head: the second one: linear, to the logits.

    Shapes:
        (batch, in_channels, *size) -> logits: (batch, classes)
    """

    def __init__(
        self, layers: Layers, block: Block, in_channels: int, classes: int, width: int, *, multiple_of: int = 1
    ) -> None:
        super().__init__()
        if width < 1 or width % multiple_of:
            raise ShapeError(f"width must be a positive multiple of {multiple_of}, got {width}.")
        outs = [width * 2 ** (i // 2) for i in range(DEPTH)]  # w w 2w 2w 4w 4w 8w 8w
        ins = [in_channels, *outs[:-1]]
        strides = [2 if i in (2, 4, 6) else 1 for i in range(DEPTH)]
        self.blocks = nn.Sequential(*(block(layers, *shape) for shape in zip(ins, outs, strides, strict=True)))
        self.hidden = nn.Sequential(layers.mean(1), nn.Flatten(), nn.Linear(outs[-1], outs[-1]), nn.ReLU())
        self.head = nn.Linear(outs[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(x)  # (batch, in_channels, *size) -> (batch, 8 * width, *size / 8)
        return self.head(self.hidden(x))  # -> (batch, classes)


class Residual(nn.Module):
    """Compute ReLU(body(x) + skip(x)); the skip is the identity if the shapes allow it, else a 1x1 convolution."""

    def __init__(self, layers: Layers, body: nn.Module, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.skip = nn.Sequential(
                layers.conv(in_channels, out_channels, 1, stride=stride, bias=False), layers.norm(out_channels)
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.body(x) + self.skip(x))


def conv_norm(
    layers: Layers, in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Return a convolution, padded to keep the size (divided by the stride), and its batch norm."""
    conv = layers.conv(in_channels, out_channels, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return [conv, layers.norm(out_channels)]
