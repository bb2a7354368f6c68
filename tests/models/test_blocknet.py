"""The paper's networks of eight blocks: shapes, tracing, gradients, and where they can be cut."""

import pytest
import torch
from torch import nn

from penstock.errors import ShapeError
from penstock.gating.surgery import cuts
from penstock.models import BlockNet, resnet8, resnet8_1d
from reproduction.models.inception import inception8, inception8_1d
from reproduction.models.resnext import ResNeXt, resnext8, resnext8_1d

EIGHT_BLOCKS = [resnet8, resnext8, inception8]
EIGHT_BLOCKS_1D = [resnet8_1d, resnext8_1d, inception8_1d]
IMAGE_SIZES = [28, 32]


@pytest.mark.parametrize("build", EIGHT_BLOCKS)
def test_the_network_is_eight_blocks_and_two_linear_blocks(build) -> None:
    net = build()
    assert [name for name, _ in net.named_children()] == ["blocks", "hidden", "head"]
    assert len(net.blocks) == 8
    assert len({type(block) for block in net.blocks}) == 1
    assert [type(m) for m in (*net.hidden, net.head)].count(nn.Linear) == 2


@pytest.mark.parametrize("build", EIGHT_BLOCKS)
@pytest.mark.parametrize("size", IMAGE_SIZES)
def test_channels_double_where_the_image_halves(build, size: int) -> None:
    x, shapes = torch.zeros(1, 3, size, size), []
    for block in build(3, width=8).eval().blocks:
        x = block(x)
        shapes.append((x.shape[1], x.shape[2]))
    assert shapes == [(8 * 2**k, -(-size // 2**k)) for k in (0, 0, 1, 1, 2, 2, 3, 3)]


@pytest.mark.parametrize("build", [*EIGHT_BLOCKS, *EIGHT_BLOCKS_1D])
def test_a_gate_can_stand_after_each_block(build) -> None:
    """At the paper's depths: after block i at i * 10 %."""
    series = build in EIGHT_BLOCKS_1D
    net = build(3, 5, width=4).eval()
    depth = {cut.name: cut.depth for cut in cuts(net, torch.zeros((1, 3, 32) if series else (1, 3, 32, 32)))}
    depth["blocks.7"] = depth["blocks"]  # the last block's output is that of all blocks
    assert [depth[f"blocks.{i}"] for i in range(8)] == pytest.approx([(i + 1) / 10 for i in range(8)])


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (resnet8(3, 11, width=4), torch.randn(3, 3, 32, 32)),
        (resnet8_1d(6, 4, width=4), torch.randn(3, 6, 100)),
        (resnext8(3, 11, width=4), torch.randn(3, 3, 32, 32)),
        (inception8(3, 11, width=4), torch.randn(3, 3, 32, 32)),
        (inception8_1d(6, 4, width=4), torch.randn(3, 6, 100)),
        (ResNeXt((1, 1, 1, 1), 7, 3), torch.randn(3, 3, 32, 32)),
    ],
    ids=["resnet8", "resnet8_1d", "resnext8", "inception8", "inception8_1d", "resnext"],
)
def test_tracing_changes_nothing(net: nn.Module, x: torch.Tensor) -> None:
    net.eval()
    torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), net(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("net", "x"),
    [
        (resnet8(width=4), torch.randn(4, 1, 28, 28)),
        (resnet8_1d(1, 6, width=4), torch.randn(4, 1, 64)),
        (resnext8(width=8), torch.randn(4, 1, 28, 28)),
        (inception8(width=8), torch.randn(4, 1, 28, 28)),
    ],
    ids=["resnet8", "resnet8_1d", "resnext8", "inception8"],
)
def test_every_parameter_learns(net: BlockNet, x: torch.Tensor) -> None:
    net(x).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


@pytest.mark.parametrize(
    ("build_series", "build_image"),
    list(zip(EIGHT_BLOCKS_1D, EIGHT_BLOCKS, strict=True)),
    ids=["resnet", "resnext", "inception"],
)
def test_images_and_series_are_one_network(build_series, build_image) -> None:
    """A series is an image of height 1, if the kernels of the image keep only their middle row."""
    series, image = build_series(6, 4, width=4).eval(), build_image(6, 4, width=4).eval()
    weights = {}
    for name, old in image.state_dict().items():
        new = series.state_dict()[name]
        if old.dim() == 4:
            old, middle = torch.zeros_like(old), old.shape[2] // 2
            old[:, :, middle] = new
            new = old
        weights[name] = new
    image.load_state_dict(weights)
    x = torch.randn(2, 6, 100)
    torch.testing.assert_close(image(x.unsqueeze(2)), series(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("build", "multiple"), [(resnet8, 1), (resnext8, 4), (inception8, 4), (inception8_1d, 4)])
def test_a_width_that_the_blocks_cannot_have_is_refused(build, multiple) -> None:
    for width in (0, multiple + 1) if multiple > 1 else (0,):
        with pytest.raises(ShapeError, match=rf"width .*{multiple}.* {width}"):
            build(1, classes=3, width=width)
