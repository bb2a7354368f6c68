"""The paper's ResNet: its size, and its shape at a gate."""

import torch

from penstock.models import resnet8


def test_a_gate_at_40_percent_depth_sees_twice_the_width_at_half_the_size() -> None:
    assert resnet8(width=16).eval().blocks[:4](torch.zeros(2, 1, 28, 28)).shape == (2, 32, 14, 14)


def test_the_size_of_resnet8() -> None:
    assert sum(p.numel() for p in resnet8().parameters()) == 714_886
