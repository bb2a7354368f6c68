"""Surgery on Hugging Face's networks as they are: the laws, for outputs with logits and cuts between encoder layers."""

from functools import partial

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.slow import slow_but
from helpers.transformers_models import NETWORKS, build, import_transformers
from penstock.errors import CutError
from penstock.gating.cascade import exit_stages

pytestmark = pytest.mark.skipif(import_transformers() is None, reason="make .venv/dev installs transformers")

NOTHING_DRAWN = dict.fromkeys(
    (
        "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob", "drop_path_rate", "layerdrop",
        "hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout", "final_dropout",
        "mask_time_prob",
    ),
    0.0,
)  # fmt: skip
"""What makes a stage draw other random numbers than the original."""


@pytest.mark.parametrize("name", slow_but({"vit", "wav2vec2", "mobilenet_v2"}, NETWORKS))
def test_gates_between_all_layers_change_nothing_and_train(name):
    torch.manual_seed(0)
    model, draw = build(name, **NOTHING_DRAWN)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    blocks, x, y = NETWORKS[name][-1], draw(8), torch.arange(8) % 5
    between = [f"{blocks}.{i}" for i in range(len(list(model.get_submodule(blocks).children())) - 1)]
    net = ps.gate(model, x[:1], at=between, layer=ps.LayerConfig("gate"))
    same = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-4)

    out, expected = net.eval()(x), model.eval()(x).logits
    same(out.logits, expected)
    back = ps.ungate(net)
    assert type(back) is type(model)
    assert back.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(back.eval()(x).logits, expected)

    net.thresholds = [one.sort().values[1].item() - 1e-4 for one in out.gates]
    prediction = net.predict(x)
    assert torch.equal(prediction.exit_stage, exit_stages(out.gates, net.thresholds, samples=len(x)))
    same(prediction.logits[~prediction.stopped], out.logits[~prediction.stopped])

    same(net.train()(x).logits, model.train()(x).logits)
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=3e-3), []
    for _ in range(6):
        optimizer.zero_grad()
        loss = ps.Objective(beta=0)(net, net(x), y).total
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    back = ps.ungate(net)
    same(back.eval()(x).logits, net.eval()(x).logits)
    assert not torch.equal(next(reversed(list(back.parameters()))), next(reversed(list(model.parameters()))))


def test_saved_and_loaded(tmp_path):
    model, draw = build("vit")
    net, x = ps.gate(model, draw(2), at="vit.layers.1").eval(), draw(3)
    ps.save(net, tmp_path / "net.safetensors")
    again = ps.load(tmp_path / "net.safetensors", build("vit")[0]).eval()
    torch.testing.assert_close(again(x).logits, net(x).logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wav2vec2"])
def test_exported_stages_are_torchs(name, tmp_path):
    """`export_bundle` compares each stage with torch's."""
    torch.manual_seed(0)
    model, draw = build(name)
    net = ps.gate(model, draw(2), at=f"{NETWORKS[name][-1]}.1").eval()
    x = draw(5)
    ps.export_bundle(net, x, tmp_path)
    result = ps.Pipeline(ps.Bundle.read(tmp_path)).predict(x.numpy())
    torch.testing.assert_close(
        torch.from_numpy(result.logits), net.predict(x).logits, atol=1e-4, rtol=1e-4, equal_nan=True
    )


def test_dropout_is_switched_with_the_mode():
    model, draw = build("vit", hidden_dropout_prob=0.5)
    net, x = ps.gate(model, draw(2), at="vit.layers.1"), draw(3)
    assert not torch.equal(net.train()(x).logits, net(x).logits)
    assert torch.equal(net.eval()(x).logits, net(x).logits)


def test_a_network_without_classes_says_what_it_returns():
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4))
    with pytest.raises(CutError, match=r"ViTModel must return class logits"):
        ps.cuts(model, torch.zeros(2, 3, 32, 32))
