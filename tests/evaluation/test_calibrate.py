"""The promise: counted on drawn data, and against MAPIE."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import DataLoader, TensorDataset

import penstock as ps
from helpers.zoo import build, sequential
from penstock.errors import CalibrationError, LabelError
from penstock.evaluation.calibrate import allowed_losses, needed_positives, weakest_allowed
from penstock.gating.network import GatedNetwork
from penstock.runtime.intervals import binomial_upper_bound

TRIALS = 1000
DELTA = 0.1


def too_many(violations: int) -> bool:
    """Say whether so many violations could hardly come from a method that keeps its promise."""
    return stats.binom.sf(violations - 1, TRIALS, DELTA) < 0.001


@pytest.mark.parametrize(("n", "loss"), [(60, 0.05), (300, 0.01), (500, 0.05)])
def test_one_gate_keeps_its_promise(n, loss):
    """A normal score: what a threshold loses is known exactly."""
    draw = np.random.default_rng(0)
    lost = []
    for _ in range(TRIALS):
        threshold, _ = weakest_allowed(draw.normal(size=n), loss, 1 - DELTA)
        lost.append(stats.norm.cdf(threshold))
    violations = int((np.array(lost) > loss).sum())
    assert not too_many(violations)
    assert violations > 0.2 * stats.binom.cdf(allowed_losses(n, loss, 1 - DELTA), n, loss) * TRIALS  # nor wastefully so


def test_a_coarse_score_keeps_the_promise_too():
    """Scores that take five values only: ties must not break it."""
    draw = np.random.default_rng(1)
    shares = np.array([0.01, 0.02, 0.03, 0.14, 0.8])
    below = np.concatenate([[0], np.cumsum(shares)])  # the share of positives below each value
    violations = 0
    for _ in range(TRIALS):
        threshold, _ = weakest_allowed(draw.choice(5, size=400, p=shares).astype(float), 0.05, 1 - DELTA)
        violations += below[int(threshold)] > 0.05
    assert not too_many(violations)


class Scores(torch.nn.Module):
    """A stage that hands its input on: gates then read their scores off the data."""

    def forward(self, x):
        return x * 1.0


class Column(torch.nn.Module):
    """A gate whose logit is one column of the features."""

    positives, reads_unmasked = None, False

    def __init__(self, column):
        super().__init__()
        self.column = column
        self.register_buffer("threshold", torch.zeros((), dtype=torch.float64))

    def forward(self, x, kept=None):
        return x[:, self.column]

    def gate_logit(self, out):
        return out

    def omega(self, labels, background):
        return labels != background

    def macs(self, kept):
        return 1


def cascade_of_columns(gates: int) -> GatedNetwork:
    net = ps.gate(
        [Scores() for _ in range(gates)] + [torch.nn.Linear(gates, 2)],
        torch.zeros(1, gates),
        layer=ps.LayerConfig("gate"),
    )
    for i, layer in enumerate(net.layers):
        layer.gate = Column(i)
    return net


def draw_scores(n: int, gates: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated scores, positives about two above the negatives."""
    draw = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = 0.6 * draw.normal(size=(n, 1)) + draw.normal(size=(n, gates)) + 2.0 * y[:, None] * np.linspace(0.7, 1.3, gates)
    return torch.from_numpy(x).float(), torch.from_numpy(y)


def test_a_cascade_keeps_its_promise():
    net, loss = cascade_of_columns(3), 0.05
    big_x, big_y = draw_scores(200_000, 3, seed=10**6)
    big_x = big_x[big_y == 1].numpy()
    violations = 0
    for seed in range(TRIALS):
        ps.calibrate(net, draw_scores(400, 3, seed), max_positive_loss=loss, confidence=1 - DELTA, batch_size=400)
        lost = (big_x < np.array(net.thresholds)).any(1).mean()
        violations += lost > loss
    assert not too_many(violations)
    assert violations > 0  # it spends what it may


@pytest.mark.parametrize("gates", [1, 2])
def test_gates_that_separate_the_two_kinds_lose_nothing(gates):
    """The promise would allow some to be lost, and nothing would be won by it."""
    net, (x, y) = cascade_of_columns(gates), draw_scores(4000, gates, seed=0)
    far = x + 20 * y[:, None]
    guarantee = ps.calibrate(net, (far, y), max_positive_loss=0.05)
    assert guarantee.lost == 0 and guarantee.bound <= 0.05
    stopped = net.predict(far).stopped
    assert stopped[y == 0].all() and not stopped[y == 1].any()


def test_a_lower_threshold_stops_the_same_negatives():
    net, (x, y) = cascade_of_columns(1), draw_scores(4000, 1, seed=0)
    guarantee = ps.calibrate(net, (x, y), max_positive_loss=0.05)
    highest, allowed = weakest_allowed(x[y == 1, 0].double().numpy(), 0.05, 0.95)
    assert net.thresholds[0] < highest and guarantee.lost <= allowed
    np.testing.assert_array_equal(x[y == 0, 0] < net.thresholds[0], x[y == 0, 0] < highest)


def test_a_cascade_costs_less_than_its_best_gate_alone():
    """Stages cost a thousand MACs each: a path that shares the loss well beats any single gate."""
    net, data = cascade_of_columns(3), draw_scores(40_000, 3, seed=1)
    net.spec = replace(net.spec, macs=(1000,) * 4)
    costs = []
    for active in ({0}, {1}, {2}, {0, 1, 2}):
        ps.calibrate(net, data, max_positive_loss=0.05, active=active)
        costs.append(ps.evaluate(net, draw_scores(40_000, 3, seed=2)).costs[1].macs)
    assert costs[3] < min(costs[:3])


def test_against_mapie():
    """The same scores, the same grid of thresholds, the same risk: MAPIE's fixed sequence ends where ours does."""
    from mapie.risk_control import BinaryClassificationController

    draw = np.random.default_rng(3)
    y = (np.arange(800) % 2).astype(int)
    chance = 1 / (1 + np.exp(-(draw.normal(size=800) + 2.5 * y)))
    grid = np.round(np.arange(0.001, 1, 0.001), 3)
    for loss in (0.03, 0.05, 0.1):
        controller = BinaryClassificationController(
            predict_function=lambda x: np.stack([1 - x[:, 0], x[:, 0]], axis=1),
            risk="recall",
            target_level=1 - loss,
            confidence_level=0.95,
            list_predict_params=grid,
            fwer_method="fixed_sequence",
        )
        controller.calibrate(chance[:, None], y)
        theirs = np.max(controller.valid_predict_params)
        ours, allowed = weakest_allowed(chance[y == 1], loss, 0.95)
        assert allowed > 0
        # MAPIE counts losses as the ceiling of a product of floats, which may add one to a whole number: so it stops
        # at the same threshold, or one loss before.
        cautious = np.sort(chance[y == 1])[allowed - 1]
        assert theirs in (grid[grid <= ours].max(), grid[grid <= cautious].max())


def test_numbers():
    assert [needed_positives(r, 0.95) for r in (0.1, 0.05, 0.02, 0.01)] == [29, 59, 149, 299]
    for n in (299, 500, 3000):
        k = allowed_losses(n, 0.01, 0.95)
        assert stats.binomtest(k, n, 0.01, "less").pvalue <= 0.05 < stats.binomtest(k + 1, n, 0.01, "less").pvalue
        assert binomial_upper_bound(k, n, 0.95) <= 0.01 < binomial_upper_bound(k + 1, n, 0.95)
        exact = stats.binomtest(k, n).proportion_ci(0.9).high  # two-sided at 90 % is one-sided at 95 %
        assert binomial_upper_bound(k, n, 0.95) == pytest.approx(exact)


@pytest.fixture
def net():
    return ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7])


def test_the_certificate_is_stored_and_survives_saving(net, tmp_path):
    data = torch.randn(900, 6), torch.arange(900) % 4
    guarantee = ps.calibrate(net, data, max_positive_loss=0.02)
    assert net.guarantee is guarantee
    assert guarantee.bound <= 0.02
    assert guarantee.lost <= allowed_losses(guarantee.positives, 0.02, 0.95)
    ps.save(net, tmp_path / "net.safetensors")
    assert ps.load(tmp_path / "net.safetensors", sequential()).guarantee == guarantee
    assert "at most" in str(guarantee)
    assert ps.evaluate(net, data).guarantee == str(guarantee)


def test_moving_a_threshold_or_the_weights_voids_the_certificate(net):
    data = torch.randn(900, 6), torch.arange(900) % 4
    ps.calibrate(net, data, max_positive_loss=0.02)
    net.thresholds = net.thresholds
    assert net.guarantee is None
    ps.calibrate(net, data, max_positive_loss=0.02)
    learnable = data[0], (data[0][:, 0] > 0).long()
    ps.fit(net, learnable, config=ps.FitConfig(epochs=3, batch_size=32, progress=False))
    assert net.guarantee is None


def test_gates_that_are_not_used_are_opened(net, tmp_path):
    data = torch.randn(900, 6), torch.arange(900) % 4
    guarantee = ps.calibrate(net, data, max_positive_loss=0.02, active={1})
    assert net.thresholds[0] == float("-inf")
    assert (net.predict(data[0]).exit_stage > 1).all()
    ps.save(net, tmp_path / "net.safetensors")
    assert ps.load(tmp_path / "net.safetensors", sequential()).guarantee == guarantee


def test_events_count_as_one_positive_each(net):
    x, y = torch.randn(4000, 6), torch.tensor([0] * 2000 + [1] * 2000)
    events = torch.cat([torch.arange(2000), 2000 + torch.arange(2000) // 10])  # ten windows an event
    by_event = ps.calibrate(net, (x, y), max_positive_loss=0.1, events=events)
    assert by_event.positives == 140  # 200 events, 30 % of which shaped the path
    thresholds = net.thresholds
    ps.calibrate(net, (x, y), max_positive_loss=0.1)
    assert all(a > b for a, b in zip(thresholds, net.thresholds, strict=True))  # all ten must be lost to lose an event
    shuffling = DataLoader(TensorDataset(x, y), shuffle=True)
    with pytest.raises(CalibrationError, match="shuffles"):
        ps.calibrate(net, shuffling, events=events)
    with pytest.raises(CalibrationError, match=r"4000.*\(5,\)"):
        ps.calibrate(net, (x, y), events=[1] * 5)


def test_too_few_positives_says_how_many_are_needed(net):
    data = torch.randn(40, 6), torch.arange(40) % 4
    with pytest.raises(CalibrationError, match=r"30 positives.*1\.00%.*95\.0%.* 299 "):
        ps.calibrate(net, data, max_positive_loss=0.01, active={0})
    with pytest.raises(CalibrationError, match=r"30 positives.*428.*30%"):
        ps.calibrate(net, data, max_positive_loss=0.01)
    with pytest.raises(CalibrationError, match=r"1 positives "):
        ps.calibrate(net, (data[0][:4], torch.tensor([0, 0, 0, 1])), max_positive_loss=0.01)
    assert net.thresholds == (0.0, 0.0)  # nothing half done
    assert net.guarantee is None


def test_just_enough_positives_are_enough(net):
    x, y = torch.randn(1000, 6), torch.zeros(1000, dtype=torch.int64)
    y[:428] = 1
    assert ps.calibrate(net, (x, y), max_positive_loss=0.01).positives == 299


def test_a_guarantee_that_only_rounding_would_allow():
    with pytest.raises(CalibrationError, match=r"4 positives, got 3"):
        allowed_losses(3, 0.49, 0.867349)


def test_the_promise_is_about_what_the_gates_in_use_are_for():
    net = ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1, 2}, {1}])
    data = torch.randn(2000, 6), torch.arange(2000) % 4
    assert ps.calibrate(net, data, max_positive_loss=0.02, active={0}).positives == 1000
    assert ps.calibrate(net, data, max_positive_loss=0.02, active={1}).positives == 500


def test_bad_promises(net):
    data = torch.randn(40, 6), torch.arange(40) % 4
    with pytest.raises(CalibrationError, match=r"max_positive_loss.*1"):
        ps.calibrate(net, data, max_positive_loss=1)
    with pytest.raises(CalibrationError, match=r"confidence.*95"):
        ps.calibrate(net, data, confidence=95)
    with pytest.raises(LabelError, match=r"no negatives.*30 samples.*calibrate"):
        ps.calibrate(net, (data[0][data[1] > 0], data[1][data[1] > 0]))
    model, draw = build("sequential")
    with pytest.raises(CalibrationError, match="no gate"):
        ps.calibrate(ps.gate(model, draw(2), at=0.5, layer=ps.LayerConfig("compression")), data)


def test_a_promise_is_shown_beside_the_positives_that_it_speaks_of():
    net = ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1, 2}, {1}])
    data = torch.randn(2000, 6), torch.arange(2000) % 4
    ps.calibrate(net, data, max_positive_loss=0.02)
    assert ps.evaluate(net, data).guarantee is not None
    assert ps.evaluate(net, data, active={1}).guarantee is not None, "the same positives, and fewer gates"
    assert ps.evaluate(net, data, active={0}).guarantee is None
    ps.calibrate(net, data, max_positive_loss=0.02, active={0})
    assert ps.evaluate(net, data, active={0}).guarantee is not None
    assert ps.evaluate(net, data).guarantee is None
