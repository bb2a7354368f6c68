"""The networks of the paper's section 4, to be gated like anybody else's: none of them knows of gates."""

from penstock.models.eight_blocks import BlockNet
from penstock.models.inception import inception8, inception8_1d
from penstock.models.resnet import resnet8, resnet8_1d
from penstock.models.resnext import ResNeXt, resnext8, resnext8_1d, resnext101_64x4d

__all__ = [
    "BlockNet",
    "ResNeXt",
    "inception8",
    "inception8_1d",
    "resnet8",
    "resnet8_1d",
    "resnext8",
    "resnext8_1d",
    "resnext101_64x4d",
]
