"""Heads: which one features get, what it reads and costs, and that each learns at the paper's rate."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import penstock as ps
from penstock.errors import LayerError
from penstock.evaluation.metrics import auc
from penstock.gating.layers import Gate, GatedCompression
from penstock.gating.layers.head import build_head, resolved

SHAPES = {"conv": (6, 9, 7), "conv2": (6, 20), "attention": (5, 8)}


@pytest.mark.parametrize(
    ("feature", "config", "head"),
    [
        ((8, 6, 6), ps.LayerConfig(), "conv2"),
        ((8, 30), ps.LayerConfig(), "conv2"),
        ((8, 4, 6, 6), ps.LayerConfig(), "conv2"),
        ((12,), ps.LayerConfig(), "linear"),
        ((12, 8), ps.LayerConfig(granularity="feature"), "attention"),
        ((8, 6, 6), ps.LayerConfig(gate_input="all"), "linear"),
        ((8, 6, 6), ps.LayerConfig(head="conv"), "conv"),
    ],
)
def test_the_head_suits_the_shape_of_the_features(feature, config, head):
    assert GatedCompression(feature, config).config.head == head


@pytest.mark.parametrize(("head", "feature"), [("conv", (12,)), ("conv2", (2,) * 5), ("attention", (8, 6, 6))])
def test_a_head_refuses_features_of_another_shape(head, feature):
    with pytest.raises(LayerError, match=f"{head}.*{feature[0]}"):
        GatedCompression(feature, ps.LayerConfig(head=head))


def macs_of(module: nn.Module, x: torch.Tensor) -> int:
    """Ask torch: a second opinion."""
    with FlopCounterMode(display=False) as counter:
        module(x)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("head", ["linear", "conv", "conv2", "attention"])
@pytest.mark.parametrize("class_loss_weight", [0.0, 0.5])
def test_the_macs_of_a_gate_are_those_of_its_layers(head, class_loss_weight):
    feature = SHAPES.get(head, (6, 5))
    config = ps.LayerConfig("gate", head=head, class_loss_weight=class_loss_weight)
    layer = GatedCompression(feature, config, classes=4)
    pooling = feature[0] * feature[1] if head == "attention" else 0  # the weighted sum over tokens is no layer
    assert layer.gate_macs == macs_of(layer.gate.eval(), torch.randn(1, *feature)) + pooling


@pytest.mark.parametrize("head", ["conv", "conv2", "attention"])
def test_a_head_that_reads_all_features_is_not_blinded_by_the_mask(head):
    layer = GatedCompression(SHAPES[head], ps.LayerConfig(head=head)).eval()
    x = torch.randn(4, *SHAPES[head])
    open_mask = layer(x)[1]
    layer.compression.phi.data.zero_().flatten()[0] = 1.0
    masked, logits = layer(x)
    assert torch.equal(logits, open_mask)
    assert torch.equal(layer.score(x), logits)
    assert (masked != 0).sum() <= 4


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("head", ["conv", "conv2", "attention"])
def test_each_head_survives_the_papers_rate(head, scale):
    feature = SHAPES[head]
    torch.manual_seed(0)
    direction = torch.randn(feature) / 2
    y = (torch.rand(512) < 0.3).float()
    x = (torch.relu(torch.randn(512, *feature)) + y.view(-1, *[1] * len(feature)) * direction.relu()) * scale
    gate = Gate(build_head(feature, resolved(ps.LayerConfig(head=head), feature)))
    optimizer = torch.optim.Adam(gate.parameters(), lr=0.01)
    for step in range(120):
        batch = slice(step * 64 % 512, step * 64 % 512 + 64)
        loss = nn.functional.binary_cross_entropy_with_logits(gate(x[batch]), y[batch])
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    least = 0.85 if head == "attention" else 0.95  # a mean over tokens loses which token it was
    assert auc(gate.eval()(x).detach(), y.bool()) > least
