"""ResNeXt-101 (64x4d): its published size, and the names of its parts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from reproduction.models.resnext import ResNeXt, resnext101_64x4d


@pytest.fixture(scope="module")
def resnext() -> ResNeXt:
    with torch.device("meta"):  # shapes without data: fast
        return resnext101_64x4d()


def test_resnext101_64x4d_has_its_published_size(resnext: ResNeXt) -> None:
    assert sum(p.numel() for p in resnext.parameters()) == 83_455_272
    with FlopCounterMode(display=False) as counter:
        logits = resnext(torch.empty(1, 3, 224, 224, device="meta"))
    assert logits.shape == (1, 1000)
    assert counter.get_total_flops() / 2 == pytest.approx(15.46e9, rel=1e-3)


def test_resnext_is_named_by_its_stages(resnext: ResNeXt) -> None:
    assert [name for name, _ in resnext.named_children()] == [
        "stem",
        *(f"layer{i}" for i in range(1, 5)),
        "head",
    ]
    assert [len(layer) for layer in (resnext.layer1, resnext.layer2, resnext.layer3, resnext.layer4)] == [
        3,
        4,
        23,
        3,
    ]


def test_resnext_takes_other_channels_and_classes() -> None:
    with torch.device("meta"):
        assert resnext101_64x4d(501, in_channels=1)(torch.empty(2, 1, 64, 64)).shape == (2, 501)
