"""Compression: what it keeps, its gradient and its cost."""

import pytest
import torch

from penstock.errors import ObjectiveError, ShapeError
from penstock.gating.layers import Compression, transmission_cost

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
