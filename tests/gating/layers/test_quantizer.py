"""The quantizer against a dumber one, and what it must never change."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import LayerError
from penstock.gating.layers import GatedCompression
from penstock.gating.layers.quantizer import Quantizer


def trained(bits, x, axis=0):
    quantizer = Quantizer(tuple(x.shape[1:]), bits, axis=axis)
    quantizer(x)
    return quantizer.eval()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("signed", [False, True])
def test_it_rounds_to_the_nearest_level_of_each_channel(bits, signed):
    torch.manual_seed(0)
    x = torch.randn(40, 3, 5) * torch.tensor([0.1, 1.0, 10.0])[:, None]
    x = x if signed else x.relu()
    quantizer = trained(bits, x)
    got = quantizer(x)
    for channel in range(3):
        step, zero = quantizer.step[channel].item(), quantizer.zero[channel].item()
        levels = torch.tensor([step * (code - zero) for code in range(2**bits)])
        nearest = levels[(x[:, channel, :, None] - levels).abs().argmin(-1)]
        torch.testing.assert_close(got[:, channel], nearest, atol=1e-5 * step, rtol=1e-5)
    assert len(got[:, 0].unique()) <= 2**bits


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4), st.sampled_from([8, 4]))
def test_zero_stays_zero_whatever_the_range(mean, spread, bits):
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)) * spread + mean
    assert not trained(bits, x)(torch.zeros(1, 2)).any()


def test_it_changes_nothing_before_it_has_seen_training_data():
    x = torch.randn(4, 3)
    assert torch.equal(Quantizer((3,), 4).eval()(x), x)


def test_the_gradient_passes_inside_the_range_and_reaches_the_step():
    x = torch.linspace(-1, 1, 41)[:, None].requires_grad_()
    quantizer = trained(4, x.detach()).train()
    quantizer(x).sum().backward()
    inside = (x > -0.9) & (x < 0.9)
    assert torch.allclose(x.grad[inside], torch.ones(()))
    assert quantizer.step.grad.abs().sum() > 0


@pytest.mark.parametrize(("bits", "expected"), [(32, 24), (8, 6), (4, 3)])
def test_a_layer_counts_the_bytes_that_it_sends(bits, expected):
    layer = GatedCompression((3, 4), ps.LayerConfig(bits=bits))
    layer.compression.phi.data.zero_().flatten()[:6] = 1.0
    assert layer.transmitted_bytes == expected


def test_the_gate_reads_what_is_not_rounded():
    for head in ("linear", "conv2"):
        layer = GatedCompression((3, 8), ps.LayerConfig(bits=4, head=head))
        x = torch.randn(6, 3, 8)
        layer.train()(x)
        sent, logits = layer.eval()(x)
        torch.testing.assert_close(layer.score(x), logits)
        assert torch.equal(sent, layer.send(x))
        assert not torch.equal(sent, x)


def test_an_unknown_number_of_bits_is_refused():
    with pytest.raises(LayerError, match=r"bits.*7"):
        ps.LayerConfig(bits=7)
