"""The objective against the paper's equation, written out by hand."""

import math

import numpy as np
import pytest
import torch

import penstock as ps
from helpers.zoo import sequential
from penstock.errors import LabelError, ObjectiveError
from penstock.gating.objective import balanced_weights


@pytest.fixture
def net():
    return ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1, 2, 3}, {2}]).eval()


def by_hand(net, x, y, alphas, betas, xi):
    """Equation 4 with Python's own arithmetic."""
    out = net(x)
    prediction = sum(
        -torch.log_softmax(row, 0)[label].item() for row, label in zip(out.logits, y.tolist(), strict=True)
    ) / len(y)
    gates = []
    for layer, logits in zip(net.layers, out.gates, strict=True):
        losses = []
        for logit, label in zip(logits.tolist(), y.tolist(), strict=True):
            probability = 1 / (1 + math.exp(-logit))
            losses.append(-math.log(probability if label in layer.gate.positives else 1 - probability))
        gates.append(sum(losses) / len(losses))
    costs = [
        sum(min(1, max(0, v)) ** 2 for v in layer.compression.phi.flatten().tolist())
        / layer.compression.phi.numel()
        / 2
        for layer in net.layers
    ]
    weights = [p for name, p in net.named_parameters() if p.ndim > 1 and "phi" not in name]
    penalty = sum(v * v for w in {id(w): w for w in weights}.values() for v in w.flatten().tolist())
    total = (1 - sum(alphas)) * prediction + sum(a * g for a, g in zip(alphas, gates, strict=True))
    total += sum(b * c for b, c in zip(betas, costs, strict=True)) + xi * penalty
    return total, prediction, sum(gates), sum(costs), penalty


def test_against_the_equation_by_hand(net):
    x, y = torch.randn(20, 6), torch.randint(0, 4, (20,))
    loss = ps.Objective(alpha=[0.2, 0.3], beta=[0.5, 0.1], xi=0.01)(net, net(x), y)
    expected = by_hand(net, x, y, [0.2, 0.3], [0.5, 0.1], 0.01)
    assert [term.item() for term in loss] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("counts", [None, (5, 4, 6, 5)])
def test_a_gate_that_learns_classes_by_hand(counts):
    """Two questions: is it of interest, and if that is known, which class is it?"""
    config = ps.LayerConfig(class_loss_weight=0.3)
    net = ps.gate(sequential(), torch.zeros(2, 6), at=0.5, positives={1, 2}, layer=config).eval()
    x, y = torch.randn(20, 6), torch.tensor([0] * 5 + [1] * 4 + [2] * 6 + [3] * 5)
    sides, kinds = [], []
    for row, label in zip(net(x).gate_outputs[0].softmax(1).tolist(), y.tolist(), strict=True):
        inside = row[1] + row[2]
        side = inside if label in (1, 2) else 1 - inside
        sides.append(-math.log(side))  # ten samples on either side: counts do not change it
        kinds.append(-math.log(row[label] / side) * (1 if counts is None else 20 / 4 / counts[label]))
    loss = ps.Objective(class_counts=counts)(net, net(x), y)
    assert loss.gate.item() == pytest.approx(sum(sides) / 20 + 0.3 * sum(kinds) / 20, rel=1e-4)


def test_label_smoothing_is_a_mixture_with_all_classes_alike_by_hand(net):
    x, y = torch.randn(20, 6), torch.randint(0, 4, (20,))
    loss = ps.Objective(alpha=0.0, beta=0.0, label_smoothing=0.2)(net, net(x), y)
    logs = net(x).logits.double().log_softmax(1)
    expected = -(0.8 * logs[range(20), y] + 0.2 * logs.mean(1)).mean().item()
    assert loss.prediction.item() == pytest.approx(expected, rel=1e-5)


def test_a_number_for_alpha_is_shared_and_for_beta_repeated(net):
    assert ps.Objective(alpha=0.5, beta=0.4).weights(net) == ([0.25, 0.25], [0.4, 0.4])


def test_values_of_numpy_and_torch_are_values_too(net):
    for kind in (np.array, torch.tensor):
        objective = ps.Objective(alpha=kind([0.25, 0.25]), beta=kind(0.5), class_counts=kind([4, 3, 2, 1]))
        assert objective == ps.Objective(alpha=[0.25, 0.25], beta=0.5, class_counts=[4, 3, 2, 1])
        objective(net, net(torch.randn(8, 6)), torch.randint(0, 4, (8,))).total.backward()


def test_a_missing_half_has_no_weight():
    net = ps.gate(
        sequential(), torch.zeros(2, 6), at=[0.3, 0.7], layer=[ps.LayerConfig("gate"), ps.LayerConfig("compression")]
    )
    assert ps.Objective(alpha=0.5, beta=0.4).weights(net) == ([0.5, 0.0], [0.0, 0.4])
    loss = ps.Objective()(net, net(torch.randn(8, 6)), torch.randint(0, 4, (8,)))
    loss.total.backward()


def test_a_plain_network_is_trained_on_the_prediction_alone():
    net = ps.gate(sequential(), torch.zeros(2, 6), at=0)
    loss = ps.Objective(alpha=0.9, beta=3)(net, net(torch.randn(8, 6)), torch.randint(0, 4, (8,)))
    assert loss.total.item() == pytest.approx(loss.prediction.item())


@pytest.mark.parametrize("label", [0, 2])
def test_a_batch_without_positives_or_negatives_just_works(net, label):
    loss = ps.Objective()(net, net(torch.randn(8, 6)), torch.full((8,), label))
    loss.total.backward()
    assert torch.isfinite(loss.total)


def test_class_counts_balance_head_and_gates(net):
    """Weighting by counts is the same as repeating the rare classes."""
    x, y = torch.randn(60, 6), torch.tensor([0] * 30 + [1] * 10 + [2] * 15 + [3] * 5)
    repeated = torch.tensor([i for i, label in enumerate(y.tolist()) for _ in range({0: 1, 1: 3, 2: 2, 3: 6}[label])])
    weighted = ps.Objective(class_counts=(30, 10, 15, 5))(net, net(x), y)
    plain = ps.Objective()(net, net(x[repeated]), y[repeated])
    assert weighted.prediction.item() == pytest.approx(plain.prediction.item(), rel=1e-5)
    even = ps.Objective(alpha=[0.5, 0], class_counts=(30, 10, 15, 5))(net, net(x), y)  # 30 to 30 at the first gate
    same = ps.Objective(alpha=[0.5, 0])(net, net(x), y)
    first = torch.nn.functional.binary_cross_entropy_with_logits(net(x).gates[0], (y > 0).float())
    assert first.item() == pytest.approx(same.gate.item() - _second(net, x, y).item(), rel=1e-4)
    assert even.gate.item() != pytest.approx(same.gate.item())  # the second gate is 15 to 45


def _second(net, x, y):
    return torch.nn.functional.binary_cross_entropy_with_logits(net(x).gates[1], (y == 2).float())


def test_balanced_weights_have_a_mean_of_one_a_sample():
    counts = torch.tensor([90, 0, 7, 3])
    weights = balanced_weights(counts)
    assert (weights * counts).sum() == pytest.approx(100)
    assert weights[1] == 0


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"alpha": 1.0}, "Σα .*got 1:"),
        ({"alpha": [0.6, 0.5]}, "Σα .*got 1.1"),
        ({"alpha": -0.1}, "alpha .*-0.1"),
        ({"alpha": float("nan")}, "alpha .*nan"),
        ({"beta": -1.0}, "beta .*-1.0"),
        ({"beta": [0.1, -0.1]}, r"beta .*\[0.1, -0.1\]"),
        ({"xi": -1}, "xi .*-1"),
        ({"class_counts": [1, -1]}, r"class_counts .*\[1, -1\]"),
        ({"label_smoothing": 1.5}, "label_smoothing .*1.5"),
        ({"distillation": -0.5}, "distillation .*-0.5"),
    ],
)
def test_weights_that_make_no_sense(choices, text):
    with pytest.raises(ObjectiveError, match=text):
        ps.Objective(**choices)


def test_values_that_do_not_fit_the_network(net):
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 3])
    with pytest.raises(ObjectiveError, match=r"alpha .*2 layers.* 3"):
        ps.Objective(alpha=[0.1, 0.1, 0.1])(net, net(x), y)
    with pytest.raises(ObjectiveError, match=r"p, .* 0"):
        ps.Objective(p=0)(net, net(x), y)
    with pytest.raises(ObjectiveError, match=r"class_counts .*\[1, 3\]"):
        ps.Objective(class_counts=[5, 0, 5, 0])(net, net(x), y)
    with pytest.raises(ObjectiveError, match=r"class_counts .*4.* 3"):
        ps.Objective(class_counts=[1, 2, 3])(net, net(x), y)
    with pytest.raises(LabelError, match=r"labels .*0 … 3.*\[-1, 9\]"):
        ps.Objective()(net, net(x), torch.tensor([0, 9, -1, 3]))
    with pytest.raises(LabelError, match=r"\(4,\), torch.float32"):
        ps.Objective()(net, net(x), y.float())
