"""Compression: the mask, its gradient, its cost, and what crosses a link."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ObjectiveError, ShapeError
from penstock.gating.layers import Compression, binary_mask, transmission_cost

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
def test_output_is_the_input_where_kept_and_zero_elsewhere(feature, granularity):
    layer, x = half_dropped(feature, granularity), torch.randn(3, *feature)
    y = layer(x)
    mask = (layer.phi > 0.5).expand(feature)
    assert torch.equal(y[:, mask], x[:, mask])
    assert (y[:, ~mask] == 0).all()


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_unpack_undoes_pack(feature, granularity):
    layer, x = half_dropped(feature, granularity), torch.randn(3, *feature)
    packed = layer.pack(x)
    assert packed[0].numel() == round(layer.density * x[0].numel())
    assert torch.equal(layer.unpack(packed), layer(x))


def test_counts():
    layer = Compression((4, 5))
    with torch.no_grad():
        layer.phi.fill_(0.5)  # exactly ½ is dropped
        layer.phi[1, 2] = 0.51
        layer.phi[3, 4] = 7.0
    assert layer.kept.tolist() == [7, 19]
    assert layer.density == pytest.approx(0.1)
    assert layer.dropout_rate == pytest.approx(0.9)


def test_a_new_mask_is_full_and_falls_at_different_heights():
    phi = Compression((32, 7, 7)).phi
    assert (phi > 0.5).all()
    assert (phi <= 1).all()
    assert phi.std() > 0.1


def test_masks_per_channel_and_per_feature_take_any_length():
    assert Compression((8, 20), "channel")(torch.randn(2, 8, 33)).shape == (2, 8, 33)
    assert Compression((20, 8), "feature")(torch.randn(2, 33, 8)).shape == (2, 33, 8)


@settings(deadline=None)
@given(st.floats(-2, 3, width=32), st.floats(-5, 5, width=32).filter(lambda g: abs(g) > 1e-3))
def test_the_gradient_goes_straight_through_unless_it_leads_further_out(value, slope):
    phi = torch.tensor([value], requires_grad=True)
    (binary_mask(phi) * slope).sum().backward()
    further_out = (value <= 0 and slope > 0) or (value >= 1 and slope < 0)
    assert phi.grad.item() == pytest.approx(0 if further_out else slope)


def test_the_gradient_of_a_dropped_dimension_is_that_of_its_mask():
    layer, x = Compression((3,)), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with torch.no_grad():
        layer.phi.copy_(torch.tensor([0.9, 0.1, 0.2]))
    (layer(x) * torch.tensor([1.0, -1.0, 2.0])).sum().backward()
    assert layer.phi.grad.tolist() == [5.0, -7.0, 18.0]  # Σ over the batch of x · ∂loss/∂y


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.7])
def test_transmission_cost_is_the_mean_power(p):
    phi = torch.tensor([-1.0, 0.0, 0.25, 0.8, 1.0, 2.0], requires_grad=True)
    cost = transmission_cost(phi, p)
    assert cost.item() == pytest.approx((0.25**p + 0.8**p + 1 + 1) / 6 / p, abs=1e-3)
    cost.backward()
    assert torch.isfinite(phi.grad).all()
    assert phi.grad[3] > 0


def test_errors_say_what_to_do():
    with pytest.raises(ObjectiveError, match=r"p, .* 0"):
        transmission_cost(torch.ones(3), 0)
    with pytest.raises(ShapeError, match=r"\(batch, 4, 5\).*\(2, 4, 6\)"):
        Compression((4, 5))(torch.zeros(2, 4, 6))
    with pytest.raises(ShapeError, match="channel"):
        Compression((4, 5), "channel")(torch.zeros(2, 3, 5))


def drawn(feature, granularity="element"):
    return Compression(feature, granularity, "drawn")


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
