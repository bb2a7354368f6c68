"""BranchyNet as a kind of gate: its entropy, its exits, and that calibration and evaluation accept it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy
from torch import nn

import penstock as ps
from penstock.gating.layers.head import LinearHead
from penstock.gating.network import GatedOutput
from reproduction.baselines import BranchyObjective, Exit, branchynet, exits
from reproduction.baselines.branchynet import collect_exit_outputs, relative_entropy

CLASSES = 4


def small_net(seed: int = 0) -> ps.GatedNetwork:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, CLASSES))
    return branchynet(model, torch.zeros(1, 6), at="1")


def blobs(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=generator)
    centres = 2 * torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(1))
    return centres[y] + 1.5 * torch.randn(n, 6, generator=generator), y


@pytest.fixture(scope="module")
def trained() -> ps.GatedNetwork:
    net = small_net()
    ps.fit(net, blobs(800), objective=BranchyObjective(), config=ps.FitConfig(epochs=6, batch_size=32, progress=False))
    return net


@given(st.lists(st.lists(st.floats(-30, 30), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_entropy_is_that_of_scipy_in_parts_of_the_highest(rows: list[list[float]]) -> None:
    logits = torch.tensor(rows, dtype=torch.float64)
    mine = relative_entropy(logits)
    theirs = entropy(logits.softmax(1).numpy(), axis=1) / np.log(3)
    torch.testing.assert_close(mine.double(), torch.from_numpy(theirs), rtol=1e-4, atol=1e-5)


def test_a_sample_leaves_where_the_exit_is_sure(trained: ps.GatedNetwork) -> None:
    """A second, dumber implementation: one sample at a time, by the paper's algorithm 1."""
    x, y = blobs(100, seed=3)
    trained.thresholds = [torch.tensor(0.2).logit().item()]
    seen = exits(trained, (x, y))
    for i in range(len(x)):
        out = trained(x[i : i + 1])
        p = out.gate_outputs[0][0].double().softmax(0)
        sure = -(p * p.clamp_min(1e-300).log()).sum() / np.log(CLASSES) < 0.2
        assert (seen.exit_stage[i] == 1) == sure
        assert seen.predicted[i] == (out.gate_outputs[0][0] if sure else out.logits[0]).argmax()
    assert 0 < (seen.exit_stage == 1).sum() < len(x)


@pytest.mark.parametrize(("threshold", "left"), [(-20.0, 0.0), (20.0, 1.0)])
def test_the_threshold_goes_from_nobody_to_everybody(trained, threshold, left) -> None:
    trained.thresholds = [threshold]
    assert (exits(trained, blobs(100)).exit_stage == 1).double().mean() == left


def test_whoever_is_stopped_left_as_background(trained: ps.GatedNetwork) -> None:
    x, y = blobs(300, seed=4)
    trained.thresholds = [torch.tensor(0.3).logit().item()]
    stopped, seen = trained.predict(x).exit_stage == 1, exits(trained, (x, y))
    assert stopped.equal((seen.exit_stage == 1) & (seen.predicted == 0))
    assert stopped.any()


def test_it_learns_is_calibrated_and_evaluated_like_a_gate(trained: ps.GatedNetwork) -> None:
    guarantee = ps.calibrate(trained, blobs(2000, seed=5), max_positive_loss=0.05)
    measured = ps.evaluate(trained, blobs(2000, seed=6))
    assert guarantee.bound <= 0.05
    assert measured.gates[0].auc > 0.9 and measured.accuracy_open > 0.9
    assert measured.positive_lost_rate < 0.08 and measured.early_stopping > 0.5


def test_an_exit_costs_an_output_for_each_class() -> None:
    assert Exit(LinearHead((10,)), classes=5).macs(10) == 16 * (10 + 5)


def test_exits_are_in_the_mode_and_on_the_device_of_the_network() -> None:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, CLASSES))
    for training in (True, False):
        net = branchynet(model.train(training), torch.zeros(1, 6), at="1")
        assert {part.training for part in net.layers[0].modules()} == {training}
    net = branchynet(model.to("meta"), torch.zeros(1, 6, device="meta"), at="1")  # every machine has this device
    assert {tensor.device.type for tensor in net.state_dict().values()} == {"meta"}


class Elsewhere(nn.Module):
    """As much of a network on another device as every machine can have: it notes where its inputs are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, device="meta"))
        self.devices: list[str] = []

    def forward(self, x: torch.Tensor) -> GatedOutput:
        self.devices.append(x.device.type)
        return GatedOutput(torch.zeros(len(x), CLASSES), (torch.zeros(len(x)),), (torch.zeros(len(x), CLASSES),))


def test_samples_are_moved_to_the_network() -> None:
    net, data = Elsewhere(), blobs(10)
    outputs = collect_exit_outputs(net, data, batch_size=5)
    assert net.devices == ["meta", "meta"]
    assert outputs.labels.equal(data[1])
    assert {column.device.type for column in (outputs.labels, outputs.predicted, *outputs.entropy)} == {"cpu"}


def test_how_several_exits_weigh() -> None:
    """Each exit has alpha / n; all weigh alike with alpha = n / (n + 1)."""
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, CLASSES))
    net, (x, y) = branchynet(model, torch.zeros(1, 6), at=["1", "3"]), blobs(50)
    out = net(x)
    *at_exits, at_end = (nn.functional.cross_entropy(logits, y) for logits in (*out.gate_outputs, out.logits))
    total = BranchyObjective(alpha=0.6)(net, out, y).total
    torch.testing.assert_close(total, 0.3 * at_exits[0] + 0.3 * at_exits[1] + 0.4 * at_end)
    total = BranchyObjective(alpha=2 / 3)(net, out, y).total
    torch.testing.assert_close(total, (at_exits[0] + at_exits[1] + at_end) / 3)
