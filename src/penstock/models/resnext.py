"""ResNeXt-101 64x4d, the paper's network for ImageNet (Xie et al., arXiv:1611.05431).

A ResNet whose 3x3 convolutions are split into 64 groups of 4 channels: 83.5 million parameters and 15.5
billion multiply-accumulates for an image of 224x224. It is cut between its stages (``layer1`` ...) or between
their bottlenecks (``layer3.11``).
"""

from torch import Tensor, nn

GROUPS = 64
"""Groups of a 3x3 convolution: the "64" of 64x4d."""


def resnext101_64x4d(classes: int = 1000, in_channels: int = 3) -> "ResNeXt":
    """Build ResNeXt-101 64x4d with fresh weights.

    Args:
        classes: classes of the output, background included (501 under the paper's mapping of ImageNet).
        in_channels: channels of the image.

    Shapes:
        (batch, in_channels, height, width) -> logits: (batch, classes)
    """
    return ResNeXt((3, 4, 23, 3), classes, in_channels)


class ResNeXt(nn.Module):
    """A stem, four stages of bottlenecks, a head.

    Attributes:
        stem: a quarter of the size, 64 channels.
        layer1, layer2, layer3, layer4: 256, 512, 1024, 2048 channels; each but the first halves the size.
        head: global average and one linear layer.
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


class Bottleneck(nn.Module):
    """Narrow, convolve in groups, widen, and add the input: ReLU(body(x) + skip(x)).

    In 64x4d the grouped convolution is as wide as the output: 64 groups of 4 channels for 256 channels out,
    and both double from stage to stage.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        inner = out_channels
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=GROUPS, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.skip = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(x) + self.skip(x))
        return out


def _stage(depth: int, in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    """Join ``depth`` bottlenecks; the first one changes the shape."""
    first = Bottleneck(in_channels, out_channels, stride)
    return nn.Sequential(first, *(Bottleneck(out_channels, out_channels, 1) for _ in range(depth - 1)))
