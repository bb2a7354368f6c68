"""The laws of Penstock: equivalences that hold for every network."""

import copy
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from helpers.zoo import ZOO, build
from penstock.evaluation.outputs import collect_outputs
from penstock.gating.cascade import exit_stages
from penstock.gating.network import GatedNetwork

EVERY = sorted(ZOO)


def gated(name: str, at=(0.3, 0.7), **choices) -> tuple[GatedNetwork, torch.nn.Module, torch.Tensor]:
    model, draw = build(name)
    depths = sorted({cut.depth for cut in ps.cuts(model, draw(2))})
    picked = sorted({min(depths, key=lambda d: abs(d - one)) for one in at})
    return ps.gate(model, draw(2), at=picked, **choices), model, draw(16)


def apply_mask(net: GatedNetwork, share: float = 0.5) -> None:
    """Drop a share of each mask, at random."""
    with torch.no_grad():
        for layer in net.layers:
            if layer.compression is not None:
                layer.compression.phi.copy_((torch.rand_like(layer.compression.phi) > share).float())


@pytest.mark.parametrize("name", EVERY)
def test_open_gates_and_full_masks_are_the_original_network(name):
    net, model, x = gated(name)
    assert net.layers
    assert all(layer.density == 1 for layer in net.layers)
    assert torch.equal(net.eval()(x).logits, model.eval()(x))


@pytest.mark.parametrize("name", EVERY)
def test_ungate_gives_the_network_back(name):
    net, model, x = gated(name)
    back = ps.ungate(net)
    assert type(back) is type(model)
    assert back.state_dict().keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[key], value), key
    assert torch.equal(back.eval()(x), model.eval()(x))
    assert len(list(back.parameters())) == len(list(model.parameters()))  # what was tied is tied


@pytest.mark.parametrize("name", EVERY)
def test_gating_leaves_the_model_untouched(name):
    model, draw = build(name)
    model.train()
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    attributes = [set(vars(module)) for module in model.modules()]
    net = ps.gate(model, draw(2), at=1)
    net.train()
    for parameter in net.parameters():
        parameter.data.add_(1)
    net(draw(4))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert modes == [module.training for module in model.modules()]
    assert attributes == [set(vars(module)) for module in model.modules()]


@pytest.mark.parametrize("name", EVERY)
def test_training_mode_is_the_same_in_both(name):
    """Dropout drops, batch norm learns: with the same chances the gated network trains like the original."""
    net, model, x = gated(name)
    net.train(), model.train()
    torch.manual_seed(5)
    expected = model(x)
    torch.manual_seed(5)
    out = net(x)
    assert torch.equal(out.logits, expected)
    back = ps.ungate(net)
    for key, value in model.state_dict().items():  # running statistics too
        assert torch.equal(back.state_dict()[key], value), key
    (out.logits.sum() + sum(g.sum() for g in out.gate_outputs)).backward()
    assert [key for key, parameter in net.origin.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("name", EVERY)
def test_the_stages_composed_are_the_whole(name):
    net, _, x = gated(name)
    apply_mask(net)
    net.eval()
    whole = net(x).logits
    for stage, layer in zip(net.stages, net.layers, strict=False):
        x = stage(x)
        if layer.compression is not None:
            x = layer.compression.unpack(layer.compression.pack(x))  # as it crosses a link
    assert torch.equal(net.stages[-1](x), whole)


EVERY_LAYER = [
    ps.LayerConfig(),
    ps.LayerConfig("gate"),
    ps.LayerConfig(granularity="channel"),
    ps.LayerConfig(granularity="feature"),
    ps.LayerConfig(granularity="channel", gate_input="all"),
    ps.LayerConfig(class_loss_weight=0.3),
]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("config", EVERY_LAYER)
def test_predict_is_forward_followed_by_the_gates(name, config):
    net, _, x = gated(name, layer=config)
    apply_mask(net)
    net.eval()
    x = x[: 6 if name == "branching" else 16]
    out = net(x)
    net.thresholds = [one.median().item() - 1e-4 for one in out.gates]
    whole = net.predict(x)
    expected = exit_stages(out.gates, net.thresholds, samples=len(x))
    if name == "branching":  # its inner way depends on who else is in the batch, so only the first gate can be compared
        assert torch.equal(whole.exit_stage == 1, expected == 1)
        return
    assert torch.equal(whole.exit_stage, expected)
    stopped = expected < len(net.stages)
    assert torch.equal(whole.stopped, stopped)
    assert stopped.any()
    assert torch.equal(whole.label[stopped], torch.full_like(whole.label[stopped], net.background))
    assert torch.equal(whole.label[~stopped], out.logits.argmax(1)[~stopped])
    torch.testing.assert_close(whole.logits[~stopped], out.logits[~stopped], atol=1e-5, rtol=1e-5)
    assert whole.logits[stopped].isnan().all()
    for i, one in enumerate(out.gates):
        reached = expected > i
        torch.testing.assert_close(whole.scores[reached, i], one.sigmoid()[reached], atol=1e-5, rtol=1e-5)
        assert whole.scores[~reached, i].isnan().all()


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6), seed=st.integers(0, 10_000))
def test_predict_is_the_same_in_any_batches(sizes, seed):
    torch.manual_seed(seed)
    net, _, _ = gated("sequential")
    net.eval()
    apply_mask(net, 0.3)
    x = torch.randn(sum(sizes), 6)
    whole, parts = net.predict(x), [net.predict(part) for part in x.split(sizes)]
    assert torch.equal(whole.label, torch.cat([part.label for part in parts]))
    assert torch.equal(whole.exit_stage, torch.cat([part.exit_stage for part in parts]))


@pytest.mark.parametrize("name", ["resnet8_1d", "sequential"])
def test_incremental_gating_never_stops_fewer_than_its_first_gate(name):
    net, _, x = gated(name)
    net.eval()
    net.thresholds = [gate.median().item() for gate in net(x).gates]
    stopped = [net.predict(x, active=range(i + 1)).stopped for i in range(len(net.layers))]
    for fewer, more in pairwise(stopped):
        assert (more | ~fewer).all()
    alone = net.predict(x, active={1}).exit_stage
    assert set(alone.tolist()) <= {2, 3}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.02, 0.4), st.floats(0.02, 0.4))
def test_a_lower_permitted_loss_never_stops_more(seed, one, other):
    torch.manual_seed(seed)
    net, _, _ = gated("sequential")
    x, y = torch.randn(600, 6), torch.randint(0, 4, (600,))
    stopped = []
    for permitted in sorted((one, other)):
        ps.calibrate(net, (x, y), max_positive_loss=permitted, confidence=0.9)
        stopped.append(net.predict(x).stopped)
    assert (stopped[1] | ~stopped[0]).all()


def test_a_dropped_dimension_comes_back_in_training():
    net, _, x = gated("sequential", at=(0.3,))
    compression = net.layers[0].compression
    with torch.no_grad():
        compression.phi.fill_(-0.3)  # dropped, and beyond the clip
        compression.phi[0] = 1.0
    y = torch.randint(0, 4, (len(x),))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    objective = ps.Objective(alpha=0.1, beta=0.0)
    assert compression.density < 0.1
    net.train()
    for _ in range(150):
        optimizer.zero_grad()
        objective(net, net(x), y).total.backward()
        optimizer.step()
    assert compression.density > 0.2


@pytest.mark.parametrize("name", ["conv1d", "recurrent", "resnet8"])
def test_save_and_load_are_inverse(name, tmp_path):
    net, _, x = gated(
        name, layer=ps.LayerConfig(granularity="feature", gate_width=5), positives=[{1, 2}, {1}], background=3
    )
    apply_mask(net)
    net.thresholds = [0.25] * len(net.layers)
    ps.save(net, tmp_path / "net.safetensors")
    fresh, _ = build(name)
    again = ps.load(tmp_path / "net.safetensors", fresh)
    assert again.thresholds == net.thresholds
    assert [layer.config for layer in again.layers] == [layer.config for layer in net.layers]
    assert [layer.gate.positives for layer in again.layers] == [(1, 2), (1,)]
    assert again.background == 3
    for mine, theirs in zip(again.eval()(x), net.eval()(x), strict=True):
        torch.testing.assert_close(mine, theirs, atol=0, rtol=0)


def test_collecting_does_not_depend_on_the_batch_size():
    net, _, x = gated("resnet8_1d")
    y = torch.arange(len(x)) % 4
    labels, logits, gates = collect_outputs(net, (x, y), batch_size=16)
    labels3, logits3, gates3 = collect_outputs(net, (x, y), batch_size=3)
    assert torch.equal(labels, labels3)
    torch.testing.assert_close(logits, logits3, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gates, gates3, atol=1e-5, rtol=1e-5)
