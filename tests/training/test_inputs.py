"""Pixels that are no inputs yet: our error, not torch's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

import penstock as ps
from penstock.errors import DataError, ShapeError

CONFIG = ps.FitConfig(epochs=1, batch_size=4, progress=False)


class Made(Dataset):
    """Sixteen samples, each made by a function."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return self.make(index), index % 2


@pytest.fixture
def net():
    stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
    model = nn.Sequential(stem, nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    return ps.gate(model, torch.zeros(2, 3, 24, 24), at=0.5, layer=ps.LayerConfig(granularity="channel"))


@pytest.mark.parametrize("way", [lambda data: data, lambda data: DataLoader(data, batch_size=4)], ids=["own", "loader"])
@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda i: torch.zeros(3, 24, 24, dtype=torch.uint8), r"\(4, 3, 24, 24\), torch.uint8"),
        (lambda i: np.zeros((24, 24, 3), np.uint8), r"\(4, 24, 24, 3\), torch.uint8"),
        (lambda i: torch.zeros(24, 24, 3), r"\(4, 24, 24, 3\), torch.float32"),
    ],
)
def test_bytes_and_channels_last_are_named(net, make, got, way) -> None:
    with pytest.raises(ShapeError, match=rf"expected input \(batch, 3, 24, 24\), float32, got {got}.*preprocess"):
        ps.fit(net, way(Made(make)), config=CONFIG)


@pytest.mark.parametrize("way", [lambda data: data, lambda data: DataLoader(data, batch_size=4)], ids=["own", "loader"])
@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda i: Image.new("RGB", (24, 20)), r"\(Image \(24, 20\), int\)"),
        (lambda i: torch.zeros(3, 24, 24 + i % 2), r"\(Tensor \(3, 24, 24\), int\) and \(Tensor \(3, 24, 25\), int\)"),
    ],
)
def test_what_makes_no_batch_is_named(net, make, got, way, tmp_path) -> None:
    with pytest.raises(DataError, match=rf"tensors x of one shape and numbers y, got {got}.*preprocess.*image_folder"):
        ps.fit(net, way(Made(make)), config=replace(CONFIG, folder=tmp_path))


def test_a_loader_of_lists_is_named(net) -> None:
    data = DataLoader(
        Made(lambda i: Image.new("RGB", (4, 4))), batch_size=4, collate_fn=lambda pairs: list(zip(*pairs, strict=True))
    )
    with pytest.raises(DataError, match=r"batches \(x, y\) with a tensor x, got tuple"):
        ps.fit(net, data, config=CONFIG)


def test_predicting_explains_it_too(net) -> None:
    with pytest.raises(ShapeError, match=r"expected input \(batch, 3, 24, 24\), float32, got \(2, 24, 24, 3\)"):
        net.predict(torch.zeros(2, 24, 24, 3))
    assert net.predict(torch.zeros(2, 3, 32, 20)).label.shape == (2,), "other sizes fit this network"
