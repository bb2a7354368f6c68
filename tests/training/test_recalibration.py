"""Recalibration: only the statistics of batch norms change, to those of deployment, and repeating it is harmless."""

import pytest
import torch
from torch import nn

import penstock as ps
from helpers.small_task import quiet
from penstock.training.recalibration import has_drawn_masks, recalibrate_batch_norm

CPU = torch.device("cpu")

pytestmark = pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")


def network(mask="drawn"):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    return ps.gate(model, torch.zeros(2, 6), at="1", layer=ps.LayerConfig(mask=mask))


def norm_of(net):
    return next(part for part in net.modules() if isinstance(part, nn.BatchNorm1d))


def task(n=256):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() * (1 + (x[:, 1] > 0).long())


def test_the_statistics_are_those_of_deployment():
    net, (x, y) = network(), task()
    net.layers[0].compression.phi.data.uniform_(0.3, 0.9, generator=torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    recalibrate_batch_norm(net, (x, y), batch_size=64, device=CPU)
    origin, mask = net.origin, net.layers[0].compression.mask
    features = origin[2]((origin[0](x).relu()) * mask)  # the input of the batch norm in deployment
    norm = norm_of(net)
    torch.testing.assert_close(norm.running_mean, features.mean(0))
    parts = features.split(64)
    torch.testing.assert_close(norm.running_var, torch.stack([part.var(0) for part in parts]).mean(0))
    assert net.training and norm.training and norm.momentum == 0.1
    changed = {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.rpartition(".")[2] for name in changed} == {"running_mean", "running_var", "num_batches_tracked"}


def test_fit_recalibrates_only_networks_with_drawn_masks(monkeypatch):
    calls = []
    monkeypatch.setattr("penstock.training.fit.recalibrate_batch_norm", lambda *_, **__: calls.append(1))
    for mask, times in (("thresholded", 0), ("drawn", 1)):
        net = network(mask)
        assert has_drawn_masks(net) is bool(times)
        ps.fit(net, task(), config=quiet(epochs=1))
        assert len(calls) == times


def test_a_trained_network_is_recalibrated_and_so_is_one_read_from_its_folder(tmp_path):
    nets = [network(), network()]
    for net in nets:  # the second is read from the folder of the first
        ps.fit(net, task(), config=quiet(epochs=2, batch_size=64, folder=tmp_path))
    states = [net.state_dict() for net in nets]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    before = norm_of(nets[0]).running_var.clone()
    nets[0].train()
    recalibrate_batch_norm(nets[0], task(), batch_size=64, device=CPU)
    assert torch.equal(norm_of(nets[0]).running_var, before), "recalibrating again changed it"


def test_a_frozen_batch_norm_stays_frozen():
    net = network()
    norm_of(net).eval()
    ps.fit(net, task(), config=quiet(epochs=1))
    assert norm_of(net).running_mean.abs().sum() == 0


def test_a_last_batch_of_one_sample_is_left_out():
    net, (x, y) = network(), task(65)
    recalibrate_batch_norm(net, (x, y), batch_size=64, device=CPU)
    assert norm_of(net).num_batches_tracked == 1 and norm_of(net).running_var.isfinite().all()
