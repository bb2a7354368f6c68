"""Small networks of the paper's section 4: plain PyTorch, without gates."""

from penstock.models.blocknet import BlockNet
from penstock.models.resnet import resnet8, resnet8_1d

__all__ = ["BlockNet", "resnet8", "resnet8_1d"]
