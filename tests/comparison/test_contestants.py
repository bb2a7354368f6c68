"""The contestants, measured as the library's own `evaluate` measures a gated network."""

import pytest
import torch

import penstock as ps
from helpers.comparison_task import PARTS, config, network
from penstock.comparison.config import GATE_ONLY, GATED, NAMES, TWO_NETWORKS, YOURS
from penstock.comparison.contestants import TRAINED, Task, macs_on
from penstock.comparison.plots import COLORS
from penstock.comparison.points import choose_threshold, measured

TRAIN, VALIDATION, TEST = PARTS
pytestmark = pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")


@pytest.fixture(scope="module")
def task():
    return Task(TRAIN, VALIDATION, config(), seed=0)


@pytest.fixture(scope="module")
def net(task):
    return task.fitted(network(), at=0)


def test_each_contestant_has_a_training_and_a_color():
    assert tuple(TRAINED) == NAMES == tuple(COLORS)


@pytest.mark.parametrize("name", [GATED, GATE_ONLY])
def test_a_gated_network_is_measured_as_evaluate_does(name, net, task):
    contestant = TRAINED[name](net, task)
    threshold = choose_threshold(contestant.answers(VALIDATION), 0.05)
    found = measured(contestant.answers(TEST), contestant.costs, threshold)
    (gated,) = contestant.networks
    gated.thresholds = [threshold]
    evaluation = ps.evaluate(gated, TEST)
    assert found["accuracy"] == evaluation.accuracy
    assert found["accuracy_open"] == evaluation.accuracy_open
    assert found["early_stopping"] == pytest.approx(evaluation.early_stopping)
    assert found["lost"] == pytest.approx(evaluation.positive_lost_rate)
    for cost, expected in zip(found["costs"], evaluation.costs[1:], strict=True):
        assert cost.macs == pytest.approx(expected.macs)
        assert cost.payload_bytes == pytest.approx(expected.payload_bytes)


def test_a_gate_alone_leaves_the_answers_as_they_were(net, task):
    gate_only, yours = TRAINED[GATE_ONLY](net, task), TRAINED[YOURS](net, task)
    assert torch.equal(gate_only.answers(TEST).final, yours.answers(TEST).final)


def test_yours_costs_the_same_wherever_its_threshold_is(net, task):
    yours = TRAINED[YOURS](net, task)
    answers = yours.answers(TEST)
    with torch.no_grad():
        background = net(TEST[0]).logits.double().log_softmax(1)[:, 0]
    assert torch.equal(answers.scores.argsort(), (-background).argsort()), "ordered by minus log p(background)"
    for threshold in (-100.0, 0.0, 100.0):
        for cost in measured(answers, yours.costs, threshold)["costs"]:
            assert (cost.macs, cost.payload_bytes) == (sum(net.spec.macs), 4 * 2 * 32)


@pytest.fixture(scope="module")
def front(net, task):
    """Two networks, and the MACs, costs and answers of each that was tried."""
    tried = []

    def recorded(answers, costs):
        tried.append((macs_on(answers, costs), costs, answers))
        return tried[-1][0]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.comparison.contestants.macs_on", recorded)
        return TRAINED[TWO_NETWORKS](net, task), tried


def test_two_networks_are_the_small_one_and_then_yours(net, front):
    contestant, _ = front
    small, second = contestant.networks
    assert second is net and sum(small.spec.macs) <= 0.1 * sum(net.spec.macs)
    answers = contestant.answers(TEST)
    threshold = choose_threshold(contestant.answers(VALIDATION), 0.05)
    found, macs, payload, right = measured(answers, contestant.costs, threshold), {0: [], 1: []}, {0: [], 1: []}, 0
    for x, label in zip(TEST[0], TEST[1].tolist(), strict=True):
        with torch.no_grad():
            wakes = (-small(x[None]).logits.log_softmax(1)[0, 0]).expm1().log().item() >= threshold
            right += (net(x[None]).logits.argmax().item() if wakes else 0) == label
        macs[label > 0].append(sum(small.spec.macs) + wakes * sum(net.spec.macs))
        payload[label > 0].append(wakes * 4 * 2 * 32)
    for of, value in ((macs, found["costs"][1].macs), (payload, found["costs"][1].payload_bytes)):
        assert value == pytest.approx(0.01 * sum(of[1]) / len(of[1]) + 0.99 * sum(of[0]) / len(of[0]))
    assert found["accuracy"] == pytest.approx(right / len(TEST[1]))


def test_the_small_network_is_chosen_on_validation_data(front):
    chosen, tried = front
    assert len(tried) == 2 and chosen.costs == min(tried, key=lambda one: one[0])[1]
    assert all(torch.equal(answers.labels, VALIDATION[1]) for *_, answers in tried)
