"""Tracing: what stays a leaf, what is refused, and that the network is not changed."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import sequential
from penstock.errors import CutError


class Caching(nn.Module):
    """Fills a cache when it first runs, as rotary embeddings do; it looks at its input, so it stays a leaf."""

    def __init__(self):
        super().__init__()
        self.size, self.cache = 0, None

    def forward(self, x):
        if x.shape[1] > self.size:
            self.size, self.cache = x.shape[1], torch.arange(float(x.shape[1]))
        return x * self.cache


def test_caches_of_the_model_and_of_the_network_stay_their_own():
    model, x = nn.Sequential(nn.Linear(6, 6), Caching(), nn.Linear(6, 3)), torch.randn(4, 6)
    ps.cuts(model, x)
    assert model[1].cache is None
    net = ps.gate(model, x, at="0")
    assert type(net(x).logits) is torch.Tensor
    assert type(model(x)) is torch.Tensor
    assert torch.equal(net(x).logits, model(x))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        self.calls += 1
        return self.fc(x)


def test_a_buffer_that_forward_counts_in_goes_on_counting():
    model, x = nn.Sequential(nn.Linear(6, 6), Counting(), nn.Linear(6, 3)), torch.randn(4, 6)
    ps.cuts(model, x)
    net = ps.gate(model, x, at="0")
    assert model[1].calls == 0
    net(x), net(x)
    assert ps.ungate(net)[1].calls == 2
    with pytest.raises(CutError, match=r"Counting.*'calls'"):
        ps.cuts(Counting(), x)


def test_random_numbers_of_forward_stay_random():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn(6)

    model, x = nn.Sequential(nn.Linear(6, 6), Noisy(), nn.Linear(6, 3)), torch.randn(4, 6)
    net = ps.gate(model, x, at="0", layer=ps.LayerConfig("compression"))
    assert not torch.equal(net(x).logits, net(x).logits)
    with pytest.raises(CutError, match=r"Noisy.*random"):
        ps.cuts(Noisy(), x)


class LayerDrop(nn.Module):
    """A block that is skipped at random in training; the random number is Python's or numpy's."""

    def __init__(self, draw):
        super().__init__()
        self.inner, self.draw = nn.Linear(6, 6), draw

    def forward(self, x):
        if self.training and self.draw() < 0.5:
            return x
        return x + self.inner(x)


def draw_with_numpy():
    return np.random.rand()


@pytest.mark.parametrize("draw", [random.random, draw_with_numpy])
@pytest.mark.parametrize("seed", range(4))
def test_random_numbers_of_python_and_numpy_stay_random_too(draw, seed):
    random.seed(seed)
    np.random.seed(seed)
    model = nn.Sequential(nn.Linear(6, 6), LayerDrop(draw), nn.ReLU(), nn.Linear(6, 3)).train()
    net = ps.gate(model, torch.zeros(2, 6), at=0.5, layer=ps.LayerConfig("gate"))
    x = torch.randn(4, 6)
    outputs = {tuple(net(x).logits.flatten().tolist()) for _ in range(30)}
    assert len(outputs) == 2


def test_tracing_draws_no_random_numbers():
    model, before = sequential(), torch.get_rng_state()
    ps.cuts(model, torch.zeros(2, 6))
    assert torch.equal(torch.get_rng_state(), before)


def test_hooks_of_the_network_itself_are_refused():
    model = sequential()
    model.register_forward_hook(lambda module, inputs, output: output * 2)
    with pytest.raises(CutError, match=r"Sequential.*hooks"):
        ps.cuts(model, torch.zeros(2, 6))
    inner = sequential()
    inner[0].register_forward_hook(lambda module, inputs, output: output * 2)
    x = torch.randn(4, 6)
    assert torch.equal(ps.gate(inner, x, at=0.5).eval()(x).logits, inner.eval()(x))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = self.a(x)
        if x.sum() > 0:
            x = -x
        return self.b(x)


def test_data_dependent_flow_says_where_and_what_to_do():
    with pytest.raises(CutError, match=r"Flow.forward .*'if x.sum\(\) > 0:'.*gate\(\[stage1"):
        ps.cuts(Flow(), torch.zeros(2, 6))


def test_a_network_with_several_inputs_is_refused():
    class Pair(nn.Module):
        def forward(self, left, right):
            return left + right

    with pytest.raises(CutError, match=r"Pair.* 2 \(left, right\)"):
        ps.cuts(Pair(), torch.zeros(2, 6))


def test_a_network_with_other_operations_in_training_is_refused():
    class Aux(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            x = self.a(x)
            return (self.b(x), x) if self.training else self.b(x)

    with pytest.raises(CutError, match=r"Aux.forward .*training .*evaluation"):
        ps.cuts(Aux(), torch.zeros(2, 6))


def test_optional_arguments_keep_their_defaults():
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x, scale=2.0, mask=None):
            x = self.a(x) * scale
            return self.b(x if mask is None else x * mask)

    model, x = Optional(), torch.randn(4, 6)
    assert torch.equal(ps.gate(model, x, at=0.5)(x).logits, model(x))
