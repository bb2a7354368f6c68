"""What surgery must not do: freeze what moves, forget what is written, or leave traces in what it was given."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import penstock as ps
from helpers.zoo import InPlace, Sized, sequential
from penstock.errors import CutError, LabelError, ShapeError


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


def test_a_buffer_changed_in_the_graph_is_changed_once_a_call():
    net, x = ps.gate(InPlace(), torch.zeros(2, 6), at="b"), torch.randn(8, 6)
    net(x), net(x)
    plain = ps.ungate(net)
    expected = F.relu(plain.a(x) + 0.3).mean(0) * 2
    torch.testing.assert_close(plain.mean, expected)


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


@pytest.mark.parametrize("layer", [ps.LayerConfig(), ps.LayerConfig("gate"), ps.LayerConfig("compression")])
def test_a_users_stage_may_change_its_input_in_place(layer):
    stages = [nn.Linear(6, 8), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 3))]
    net = ps.gate(stages, torch.zeros(2, 6), layer=layer).train()
    x, y = torch.randn(8, 6), torch.arange(8) % 3
    ps.Objective()(net, net(x), y).total.backward()
    assert all(parameter.grad is not None for parameter in net.stages.parameters())


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_networks_that_cannot_be_copied_say_what_to_do():
    old = nn.utils.weight_norm(nn.Linear(6, 6))
    old(torch.zeros(1, 6))
    with pytest.raises(CutError, match=r"Sequential.*parametrizations"):
        ps.gate(nn.Sequential(old, nn.ReLU(), nn.Linear(6, 3)), torch.zeros(2, 6), at=0.5)


def test_tracing_draws_no_random_numbers():
    model, before = sequential(), torch.get_rng_state()
    ps.cuts(model, torch.zeros(2, 6))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_integer_read_off_the_data_is_no_size():
    class Largest(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.fc = nn.Embedding(9, 6), nn.Linear(6, 3)

        def forward(self, tokens):
            largest = tokens.max().item()
            return self.fc(self.embed(tokens).mean(1) * largest)

    model, tokens = Largest(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    names = [name for cut in ps.cuts(model, tokens) for name in (cut.name, *cut.also)]
    assert "embed" not in names  # the integer crosses there too


def test_sizes_of_earlier_stages_fix_the_input():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, x):
            length = x.shape[1]
            return self.c(self.b(self.a(x)).sum(1) / length)

    net = ps.gate(Average(), torch.zeros(2, 10, 6), at="b", layer=ps.LayerConfig(granularity="feature"))
    for call in (net, net.predict):
        with pytest.raises(ShapeError, match=r"\(2, 20, 6\)"):
            call(torch.randn(2, 20, 6))
    net(torch.randn(5, 10, 6))
    assert ps.gate(Sized(), torch.zeros(2, 3, 16, 16), at="patch").spec.fixed_size


def test_series_of_any_length_where_nothing_fixes_it():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3))
    net = ps.gate(model, torch.zeros(2, 3, 20), at="1", layer=ps.LayerConfig(granularity="channel")).eval()
    x = torch.randn(5, 3, 33)
    assert torch.equal(net(x).logits, model(x))
    net.predict(x)


def test_ungated_networks_are_in_the_mode_of_the_gated_one():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3)
            self.register_buffer("shift", torch.ones(6))

        def forward(self, x):
            return self.b(F.dropout(self.a(x), 0.5, self.training) + self.shift)

    net, x = ps.gate(Functional().train(), torch.zeros(2, 6), at="a"), torch.randn(9, 6)
    plain = ps.ungate(net.eval())
    assert not plain.training
    assert torch.equal(plain(x), plain(x))
    assert ps.ungate(net.train()).training
    halved = ps.ungate(net.bfloat16())
    assert halved.shift.dtype == halved.a.weight.dtype == torch.bfloat16


def test_a_network_of_another_precision():
    for dtype in (torch.float64, torch.bfloat16):
        net, x = ps.gate(sequential().to(dtype), torch.zeros(2, 6, dtype=dtype), at=0.5), torch.randn(9, 6, dtype=dtype)
        out = net(x)
        assert out.logits.dtype == dtype
        ps.Objective()(net, out, torch.zeros(9, dtype=torch.int64)).total.backward()
        net.predict(x)


def test_an_in_place_operation_on_a_view_trains():
    model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(4 * 8, 3))
    for layer in (ps.LayerConfig(), ps.LayerConfig("gate")):
        net, x = ps.gate(model, torch.zeros(2, 3, 10), at="0", layer=layer), torch.randn(4, 3, 10)
        ps.Objective()(net, net(x), torch.tensor([0, 1, 2, 0])).total.backward()
        gradients = [p.grad for p in net.stages.parameters()]
        assert gradients and all(g is not None and g.isfinite().all() and g.abs().sum() > 0 for g in gradients)


def test_hooks_of_the_network_itself_are_refused():
    model = sequential()
    model.register_forward_hook(lambda module, inputs, output: output * 2)
    with pytest.raises(CutError, match=r"Sequential.*hooks"):
        ps.cuts(model, torch.zeros(2, 6))
    inner = sequential()
    inner[0].register_forward_hook(lambda module, inputs, output: output * 2)
    x = torch.randn(4, 6)
    assert torch.equal(ps.gate(inner, x, at=0.5).eval()(x).logits, inner.eval()(x))


def test_module_names_come_before_operations():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.relu_1, self.b = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.b(torch.relu(self.relu_1(torch.relu(torch.relu(self.a(x))))))

    assert ps.gate(Named(), torch.zeros(2, 6), at="relu_1").layers[0].feature == (4,)


def test_gates_that_nothing_could_pass_are_refused():
    with pytest.raises(LabelError, match=r"positives \[\(1,\), \(2,\)\]"):
        ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1}, {2}])
