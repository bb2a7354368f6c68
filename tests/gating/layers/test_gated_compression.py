"""GatedCompression: a mask and a gate built from one configuration."""

import pytest
import torch

import penstock as ps
from penstock.errors import LabelError
from penstock.gating.layers import GatedCompression


def test_a_gate_alone_can_read_every_value():
    torch.manual_seed(0)
    layer = GatedCompression((4, 6), ps.LayerConfig("gate", granularity="channel", gate_input="all"))
    assert layer.gate.head.squeeze.in_features == len(layer.read) == 24
    assert not layer.any_length


def test_a_class_loss_needs_the_number_of_classes():
    with pytest.raises(LabelError, match="classes"):
        GatedCompression((4,), ps.LayerConfig(class_loss_weight=0.3))


GRANULARITIES = ["element", "channel", "feature"]


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("feature", [(8,), (5, 9), (4, 6, 7)], ids=str)
@pytest.mark.parametrize("gate_input", ["kept", "all"])
@pytest.mark.parametrize("class_loss_weight", [0.0, 0.3])
def test_the_shrunk_gate_computes_the_same_from_packed_features(feature, granularity, gate_input, class_loss_weight):
    config = ps.LayerConfig(
        granularity=granularity, head="linear", gate_input=gate_input, class_loss_weight=class_loss_weight
    )
    layer, x = GatedCompression(feature, config, classes=5), torch.randn(6, *feature)
    with torch.no_grad():
        layer.compression.phi.copy_(torch.rand_like(layer.compression.phi))
        layer.compression.phi.flatten()[-1] = 1.0
    _, expected = layer(x)
    packed, kept = layer.compression.pack(x), layer.compression.kept
    small = layer.gate.shrink(layer.read)
    assert small is not layer.gate and small.head.squeeze is not layer.gate.head.squeeze
    assert small.head.squeeze.weight.shape == (16, packed[0].numel() if gate_input == "all" else len(kept))
    torch.testing.assert_close(small(packed), expected)
    torch.testing.assert_close(layer.score(x), expected)
    assert layer.gate_macs == sum(
        p.numel() for n, p in small.named_parameters() if n in ("head.squeeze.weight", "score.weight")
    )
