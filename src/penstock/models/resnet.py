"""The paper's ResNet, for images and for time series: 8 residual blocks and 2 linear blocks (blocknet.py)."""

from torch import nn

from penstock.models.blocknet import IMAGES, SERIES, BlockNet, Layers, Residual, conv_norm


def resnet8(in_channels: int = 1, classes: int = 6, width: int = 16) -> BlockNet:
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
    return BlockNet(IMAGES, basic_block, in_channels, classes, width)


def resnet8_1d(in_channels: int, classes: int, width: int = 16) -> BlockNet:
    """Build the same network for time series, such as inertial sensors or audio features.

    Shapes:
        (batch, in_channels, time) -> logits: (batch, classes)

    >>> import torch
    >>> resnet8_1d(6, classes=4).eval()(torch.zeros(2, 6, 100)).shape
    torch.Size([2, 4])
    """
    return BlockNet(SERIES, basic_block, in_channels, classes, width)


def basic_block(layers: Layers, in_channels: int, out_channels: int, stride: int) -> Residual:
    """Build a residual block of two convolutions of width 3."""
    body = nn.Sequential(
        *conv_norm(layers, in_channels, out_channels, 3, stride),
        nn.ReLU(),
        *conv_norm(layers, out_channels, out_channels, 3),
    )
    return Residual(layers, body, in_channels, out_channels, stride)
