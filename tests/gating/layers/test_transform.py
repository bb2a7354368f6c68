"""A change of coordinates before the mask: nothing is lost by it, and few coefficients say nearly all."""

import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import LayerError
from penstock.gating.layers import GatedCompression, LayerConfig
from penstock.gating.layers.head import resolved
from penstock.gating.layers.transform import Transform, cosines

FEATURES = [(5, 9), (4, 6, 7), (3, 2, 4, 5)]


def fitted(feature, samples=64):
    torch.manual_seed(0)
    transform, x = Transform(feature), torch.randn(samples, *feature) + torch.rand(feature)
    transform.observe(x)
    transform.fit()
    transform.train()(x)
    return transform.eval(), x


@given(st.integers(1, 40))
def test_cosines_are_those_of_scipy(size):
    x = torch.randn(3, size)
    expected = torch.from_numpy(scipy.fft.dct(x.numpy(), norm="ortho"))
    assert torch.allclose(x @ cosines(size).T, expected, atol=1e-5)


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_nothing_is_lost(feature):
    transform, x = fitted(feature)
    coefficients = transform(x)
    assert coefficients.shape == x.shape
    assert not torch.allclose(coefficients, x, atol=0.1)
    assert torch.allclose(transform.inverse(coefficients), x, atol=1e-5)


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_it_is_the_transform_of_scipy_and_numpy(feature):
    """A second implementation: eigenvectors of the covariance by numpy, cosines by scipy."""
    transform, x = fitted(feature)
    axes = tuple(range(2, x.ndim))
    vectors = torch.linalg.eigh(torch.cov(x.movedim(1, -1).flatten(0, -2).T, correction=0).double())[1].flip(1).float()
    rotated = torch.einsum("ck,bc...->bk...", vectors, x)
    expected = torch.from_numpy(scipy.fft.dctn(rotated.numpy(), axes=axes, norm="ortho"))
    ours = transform(x) * transform.scale
    assert torch.allclose(ours.abs(), expected.abs(), atol=1e-3)  # the sign of a component is free


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_coefficients_have_one_range(feature):
    transform, x = fitted(feature)
    assert torch.allclose(transform(x).square().mean(0), torch.ones(feature), atol=1e-3)


def test_few_coefficients_say_nearly_all_of_what_is_smooth_and_alike():
    torch.manual_seed(0)
    ramp = torch.linspace(-1, 1, 12)
    x = torch.randn(64, 1, 1, 1) * ramp[:, None] + torch.randn(64, 1, 1, 1) * ramp
    x = x * torch.rand(1, 8, 1, 1)
    transform = Transform((8, 12, 12))
    transform.observe(x)
    transform.fit()
    coefficients = transform.coefficients(x)
    largest = coefficients.square().mean(0).flatten().topk(12).indices
    few = torch.zeros_like(coefficients).flatten(1).index_copy(1, largest, coefficients.flatten(1)[:, largest])
    error = (transform.features(few.view_as(x)) - x).square().mean() / x.square().mean()
    assert error < 0.01  # of 1,152 values 12 are kept


def test_a_new_layer_changes_nothing_and_a_changed_one_hardly():
    torch.manual_seed(0)
    layer, x = GatedCompression((4, 6, 6), LayerConfig("compression", keep=0.5)), torch.randn(32, 4, 6, 6)
    assert torch.equal(layer(x)[0], x)
    layer.change_coordinates()
    assert torch.allclose(layer(x)[0], x, atol=1e-5)
    assert layer.compression.transform.fitted


@pytest.mark.parametrize("bits", [32, 8])
def test_pack_and_unpack_are_forward(bits):
    torch.manual_seed(0)
    layer, x = GatedCompression((4, 6, 6), LayerConfig("compression", keep=40, bits=bits)), torch.randn(32, 4, 6, 6)
    layer(x)
    layer.change_coordinates()
    layer(x)[0].sum().backward()
    layer.compression.keep_only(40)
    layer.eval()
    packed = layer.compression.pack(x)
    assert packed.shape == (32, 40)
    if bits == 32:
        assert torch.allclose(layer.compression.unpack(packed), layer(x)[0], atol=1e-5)
    assert torch.equal(layer.send(x), layer(x)[0])


def test_a_new_range_after_the_change():
    layer = GatedCompression((4, 6, 6), LayerConfig("compression", keep=40, bits=8))
    x = 100 * torch.randn(32, 4, 6, 6)
    layer(x)
    assert layer.quantizer.ready
    layer.change_coordinates()
    assert not layer.quantizer.ready
    layer(x)
    assert layer.quantizer.step.max() < 1  # coefficients have a range of their own


@pytest.mark.parametrize(
    ("config", "feature", "transform"),
    [
        (LayerConfig(keep=10), (4, 6, 6), "cosine"),
        (LayerConfig(keep=10), (4, 30), "cosine"),
        (LayerConfig("compression", keep=10), (4, 30), "cosine"),
        (LayerConfig(keep=10, head="linear"), (4, 30), "cosine"),
        (LayerConfig(keep=10, transform="none"), (4, 6, 6), "none"),
        (LayerConfig(keep=10, head="attention"), (4, 30), "none"),
        (LayerConfig(keep=10), (40,), "none"),
        (LayerConfig(), (4, 6, 6), "none"),
        (LayerConfig(keep=0.5, granularity="channel"), (4, 6, 6), "none"),
    ],
)
def test_auto_takes_it_where_it_is_possible(config, feature, transform):
    assert GatedCompression(feature, config).config.transform == transform


def test_errors_name_what_is_needed():
    with pytest.raises(LayerError, match="keep"):
        LayerConfig(transform="cosine")
    with pytest.raises(LayerError, match="keep"):
        LayerConfig(transform="cosine", keep=0.5, granularity="channel")
    with pytest.raises(LayerError, match="40"):
        GatedCompression((40,), LayerConfig(transform="cosine", keep=10))
    with pytest.raises(LayerError, match="transform"):
        LayerConfig("gate", transform="cosine")
    with pytest.raises(LayerError, match="transform"):
        LayerConfig(transform="wavelet")


def test_macs_are_those_of_its_products():
    assert Transform((4, 6, 7)).macs() == 4 * 4 * 42 + 4 * 42 * 6 + 4 * 42 * 7


def test_bfloat16_changes_nothing_of_what_is_fitted():
    """Training in bfloat16 sees features in 16 bits; covariances and axes are still computed in float32."""
    torch.manual_seed(0)
    x = torch.randn(64, 5, 9)
    plain, mixed = Transform((5, 9)), Transform((5, 9))
    for transform, bfloat16 in ((plain, False), (mixed, True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            transform.observe(x)
            transform.fit()
            transform.train()(x)
    assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), mixed.buffers(), strict=True))


def test_a_network_with_keep_learns_in_bfloat16():
    torch.manual_seed(0)
    layer = GatedCompression((4, 6, 6), LayerConfig(keep=40, bits=8), classes=3)
    with torch.autocast("cpu", torch.bfloat16):
        layer(torch.randn(8, 4, 6, 6).bfloat16().requires_grad_())[0].float().square().sum().backward()
        layer.change_coordinates()
        y, _ = layer(torch.randn(8, 4, 6, 6).bfloat16().requires_grad_())
    y.float().square().sum().backward()
    layer.compression.keep_only(40)
    assert len(layer.compression.kept) == 40


@pytest.mark.parametrize(("network_macs", "expected"), [(1_000_000, "none"), (2_000_000, "cosine"), (None, "cosine")])
def test_a_network_so_small_that_it_would_cost_too_much_keeps_its_own_coordinates(network_macs, expected):
    feature = (32, 29)  # 56,608 multiply-accumulates
    assert resolved(LayerConfig(keep=0.1), feature, network_macs=network_macs).transform == expected
    asked_for = LayerConfig(keep=0.1, transform="cosine")
    assert resolved(asked_for, feature, network_macs=network_macs).transform == "cosine"
