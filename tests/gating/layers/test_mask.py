"""The binary mask: its gradient, and masks drawn at random in training."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gating.layers import Compression, binary_mask

FEATURES = [(8,), (5, 9), (4, 6, 7), (3, 2, 4, 5)]
GRANULARITIES = ["element", "channel", "feature"]


def drawn(feature, granularity="element"):
    return Compression(feature, granularity, "drawn")


@settings(deadline=None)
@given(st.floats(-2, 3, width=32), st.floats(-5, 5, width=32).filter(lambda g: abs(g) > 1e-3))
def test_the_gradient_goes_straight_through_unless_it_leads_further_out(value, slope):
    phi = torch.tensor([value], requires_grad=True)
    (binary_mask(phi) * slope).sum().backward()
    further_out = (value <= 0 and slope > 0) or (value >= 1 and slope < 0)
    assert phi.grad.item() == pytest.approx(0 if further_out else slope)


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_a_drawn_mask_keeps_whole_dimensions_of_each_sample(feature, granularity):
    layer, x = drawn(feature, granularity), torch.rand(50, *feature) + 1
    y = layer(x)
    kept = (y != 0).float()
    assert torch.equal(y, x * kept)
    units = layer.layout.pool(kept)  # the mean over what a dimension stands for
    assert ((units == 0) | (units == 1)).all()
    assert len(units.unique(dim=0)) > 1


def test_a_drawn_mask_keeps_what_is_above_the_threshold_as_often_as_phi_says():
    layer, samples = drawn((6,)), 20_000
    with torch.no_grad():
        layer.phi.copy_(torch.tensor([-0.3, 0.0, 0.2, 0.7, 1.0, 1.8]))
    torch.manual_seed(0)
    often = layer(torch.ones(samples, 6)).mean(0)
    assert often[3].item() == pytest.approx(0.7, abs=4 * (0.25 / samples) ** 0.5)
    assert often[[0, 1, 2, 4, 5]].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_a_drawn_mask_hands_its_gradient_through_like_a_thresholded_one():
    x, slope = torch.randn(7, 5), torch.randn(7, 5)
    layers = [Compression((5,)), drawn((5,))]
    for layer in layers:
        with torch.no_grad():
            layer.phi.copy_(torch.tensor([0.9, 0.1, 0.5, -0.2, 1.3]))
        (layer(x) * slope).sum().backward()
    torch.testing.assert_close(layers[1].phi.grad, layers[0].phi.grad)


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
def test_in_deployment_a_drawn_mask_is_the_thresholded_one(granularity):
    layer, x = drawn((4, 6, 7), granularity).eval(), torch.randn(3, 4, 6, 7)
    with torch.no_grad():
        layer.phi.copy_(torch.rand_like(layer.phi))
        layer.phi.flatten()[0] = 1.0
    assert torch.equal(layer(x), x * (layer.phi > 0.5))
    assert torch.equal(layer.unpack(layer.pack(x)), layer(x))
