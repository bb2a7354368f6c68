"""The early exit: its entropy, its loss, and its answers against a walk from sample to sample."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy
from torch.nn import functional as F

import penstock as ps
from helpers.comparison_task import PARTS, config, network
from penstock.comparison.config import EARLY_EXIT
from penstock.comparison.contestants import TRAINED, Task
from penstock.comparison.early_exit import EQUAL_WEIGHTS, EXIT, relative_entropy
from penstock.comparison.points import choose_threshold, measured


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=3))
def test_the_entropy_is_that_of_the_softmax_in_units_of_its_maximum(logits):
    probabilities = torch.tensor(logits).double().softmax(0)
    expected = entropy(probabilities.numpy(), base=3)
    assert relative_entropy(torch.tensor([logits])).item() == pytest.approx(expected, abs=1e-6)


def test_exit_and_final_output_are_trained_with_their_cross_entropies_at_equal_weights():
    net = ps.gate(network(), PARTS[0][0][:2], at=0.5, layer=EXIT)
    x, y = PARTS[0]
    out = net(x)
    expected = (F.cross_entropy(out.logits, y) + F.cross_entropy(out.gate_outputs[0], y)) / 2
    torch.testing.assert_close(EQUAL_WEIGHTS(net, out, y).total, expected)


@pytest.mark.filterwarnings("ignore::penstock.training.module.CollapseWarning")
def test_its_answers_and_costs_are_those_of_a_walk_through_the_samples():
    train, validation, test = PARTS
    yours = ps.gate(network(), train[0][:2], at=0)
    exit_ = TRAINED[EARLY_EXIT](yours, Task(train, validation, config(), seed=0))
    threshold = choose_threshold(exit_.answers(validation), 0.05)
    found = measured(exit_.answers(test), exit_.costs, threshold)
    (net,) = exit_.networks
    right, macs, lost = 0, {True: [], False: []}, 0
    for x, label in zip(test[0], test[1].tolist(), strict=True):
        with torch.no_grad():
            features = net.stages[0](x[None])
            early = net.layers[0].gate(features).softmax(1)[0]
            certain = entropy(early.numpy(), base=3) < threshold
            given = early.argmax() if certain else net.stages[1](features).argmax()
        right += given.item() == label
        lost += bool(certain and given == 0 and label)
        head = net.layers[0].gate.macs(0)
        macs[label > 0].append(net.spec.macs[0] + head + (0 if certain else net.spec.macs[1]))
    means = [sum(of) / len(of) for of in macs.values()]
    assert found["accuracy"] == pytest.approx(right / len(test[1]))
    assert found["lost"] == pytest.approx(lost / len(macs[True]))
    assert found["costs"][0].macs == pytest.approx(0.1 * means[0] + 0.9 * means[1])
    assert sum(one == macs[True][0] for one in macs[True]) > 0, "positives leave early too"
