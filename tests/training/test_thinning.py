"""Masks with `keep`: exactly so much crosses, what matters stays, and a resumed run ends with the same mask."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import penstock as ps
from helpers.small_task import network, quiet, task, weights
from penstock.errors import LayerError
from penstock.training.thinning import BEGIN, END, kept_share, thin

KEEP = ps.LayerConfig(keep=6)


@pytest.mark.parametrize(
    ("keep", "choices", "kept"),
    [
        (5, {}, 5),
        (0.25, {}, 24),
        ("40 bytes", {}, 80),
        ("40 bytes", {"bits": 32}, 10),
        ("40 bytes", {"bits": 8}, 40),
        ("40 bytes", {"bits": 4}, 80),
        (24, {"granularity": "channel"}, 24),
        (35, {"granularity": "channel"}, 24),
    ],
)
def test_training_ends_with_exactly_what_may_cross(keep, choices, kept):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4))
    x, y = torch.randn(64, 1, 12), torch.arange(64) % 4
    net = ps.gate(model, x[:2], at=["1"], layer=ps.LayerConfig("compression", keep=keep, **choices))
    ps.fit(net, (x, y), objective=ps.Objective(alpha=0), config=quiet(epochs=4, batch_size=8))
    assert net.layers[0].transmitted_values == kept


def test_a_run_of_two_steps_ends_with_it_too():
    net = network(layer=ps.LayerConfig("compression", keep=6))
    ps.fit(net, task(64), objective=ps.Objective(alpha=0), config=quiet(epochs=1, batch_size=32))
    assert net.layers[0].transmitted_values == 6


def test_what_the_network_needs_is_kept():
    """Of 12 features only two have anything to do with the labels, and the network knows."""
    torch.manual_seed(0)
    x = torch.randn(512, 12)
    y = (x[:, 3] > 0).long() + 2 * (x[:, 8] > 0).long()
    first, rest = nn.Linear(12, 12), nn.Linear(12, 4)
    with torch.no_grad():
        first.weight.copy_(torch.eye(12)), first.bias.zero_(), rest.weight.mul_(0.1)
        rest.weight[:, 3], rest.weight[:, 8] = torch.tensor([-3, 3, -3, 3]), torch.tensor([-3, -3, 3, 3])
    net = ps.gate(nn.Sequential(first, rest), x[:2], at=["0"], layer=ps.LayerConfig("compression", keep=2))
    config = quiet(epochs=4, batch_size=32, frozen=("0",), optimizer=ps.OptimizerConfig(rate=0.001))
    ps.fit(net, (x, y), objective=ps.Objective(alpha=0), config=config)
    assert net.layers[0].compression.kept.tolist() == [3, 8]
    assert (net(x).logits.argmax(1) == y).float().mean() > 0.95


@given(st.floats(0, 1), st.floats(0, 1))
def test_ever_less_is_kept(one, other):
    early, late = sorted((one, other))
    assert 0 <= kept_share(late) <= kept_share(early) <= 1
    assert kept_share(BEGIN) == 1
    assert kept_share(END) == 0


def test_a_loop_of_ones_own_thins_too():
    net = network(layer=KEEP)
    x, y = task(64)
    for step in range(20):
        thin(net, step / 20)
        ps.Objective()(net, net(x), y).total.backward()
    assert len(net.layers[0].compression.kept) == 6


def test_a_resumed_run_ends_with_the_same_mask(tmp_path):
    x, y = task()
    whole = network(layer=KEEP)
    ps.fit(whole, (x, y), config=quiet(epochs=4, batch_size=64, folder=tmp_path / "whole"))

    class Stop(Exception):
        pass

    from lightning.pytorch.callbacks import Callback

    class Break(Callback):
        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == 2:
                raise Stop

    parts = network(layer=KEEP)
    with pytest.raises(Stop):
        ps.fit(parts, (x, y), config=quiet(epochs=4, batch_size=64, folder=tmp_path / "parts", callbacks=(Break(),)))
    parts = network(layer=KEEP)
    ps.fit(parts, (x, y), config=quiet(epochs=4, batch_size=64, folder=tmp_path / "parts"))
    assert torch.equal(weights(whole), weights(parts))
    assert torch.equal(whole.layers[0].compression.importance, parts.layers[0].compression.importance)


@pytest.mark.parametrize("keep", [0, -3, True, 0.0, 1.0, "40", "40 kB", "x bytes"])
def test_an_amount_that_means_nothing_is_refused(keep):
    with pytest.raises(LayerError, match="keep"):
        ps.LayerConfig(keep=keep)


@pytest.mark.parametrize(("keep", "granularity"), [(97, "element"), (11, "channel"), ("49 bytes", "element")])
def test_an_amount_that_does_not_fit_the_features_is_refused(keep, granularity):
    with pytest.raises(LayerError, match="96"):
        ps.LayerConfig(keep=keep, granularity=granularity).kept_dimensions((8, 12))
