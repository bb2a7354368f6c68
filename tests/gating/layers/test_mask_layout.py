"""Mask layouts: packing, and features of any length."""

import pytest
import torch

from penstock.gating.layers import Compression

FEATURES = [(8,), (5, 9), (4, 6, 7), (3, 2, 4, 5)]
GRANULARITIES = ["element", "channel", "feature"]


def half_dropped(feature, granularity):
    layer = Compression(feature, granularity)
    with torch.no_grad():
        layer.phi.copy_(torch.rand_like(layer.phi))
        layer.phi.flatten()[0] = 1.0
    return layer


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_unpack_undoes_pack(feature, granularity):
    layer, x = half_dropped(feature, granularity), torch.randn(3, *feature)
    packed = layer.pack(x)
    assert packed[0].numel() == round(layer.density * x[0].numel())
    assert torch.equal(layer.unpack(packed), layer(x))


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_packed_shape_is_that_of_packed_features(feature, granularity):
    layer = half_dropped(feature, granularity)
    assert layer.layout.packed_shape(feature, len(layer.kept)) == layer.pack(torch.randn(3, *feature)).shape[1:]


def test_masks_per_channel_and_per_feature_take_any_length():
    assert Compression((8, 20), "channel")(torch.randn(2, 8, 33)).shape == (2, 8, 33)
    assert Compression((20, 8), "feature")(torch.randn(2, 33, 8)).shape == (2, 33, 8)
