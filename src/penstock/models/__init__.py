"""The networks of the paper's section 4, to be gated like anybody else's: none of them knows of gates."""

from penstock.models.resnet import BasicBlock, BlockNet, resnet8, resnet8_1d
from penstock.models.resnext import Bottleneck, ResNeXt, resnext101_64x4d

__all__ = [
    "BasicBlock",
    "BlockNet",
    "Bottleneck",
    "ResNeXt",
    "resnet8",
    "resnet8_1d",
    "resnext101_64x4d",
]
