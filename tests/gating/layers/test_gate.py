"""Gate and ClassGate: which samples are positive, and that the head survives the paper's learning rate."""

import pytest
import torch

from penstock.errors import LabelError, ObjectiveError
from penstock.evaluation.metrics import auc
from penstock.gating.layers import ClassGate, Gate
from penstock.gating.layers.head import LinearHead


def test_omega():
    labels = torch.tensor([0, 1, 2, 3, 3])
    assert Gate(LinearHead((4,))).omega(labels, background=3).tolist() == [True, True, True, False, False]
    assert Gate(LinearHead((4,)), positives={1, 3}).omega(labels, background=0).tolist() == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_a_gate_without_positives_is_refused():
    with pytest.raises(LabelError, match="positives"):
        Gate(LinearHead((4,)), positives=[])


@pytest.mark.parametrize(("positives", "background"), [(None, 0), (None, 2), ({1, 3}, 0)])
def test_a_gate_that_learns_classes_passes_by_the_probability_of_the_positive_classes(positives, background):
    gate = ClassGate(LinearHead((6,)), classes=4, positives=positives, background=background)
    out = gate(torch.randn(9, 6))
    assert out.shape == (9, 4)
    positive = gate.omega(torch.arange(4), background)
    probability = out.softmax(1)[:, positive].sum(1)
    torch.testing.assert_close(gate.gate_logit(out).sigmoid(), probability)


@pytest.mark.parametrize("choices", [{"positives": {0, 1, 2}}, {"positives": {7}}, {"background": 7}])
def test_a_gate_that_learns_classes_needs_positive_and_negative_ones(choices):
    with pytest.raises(LabelError, match="0 … 2"):
        ClassGate(LinearHead((6,)), classes=3, **choices)


@pytest.mark.parametrize("weight", [-0.3, 0.0, float("inf"), float("nan")])
def test_the_class_loss_weight_of_a_gate_is_a_weight(weight):
    with pytest.raises(ObjectiveError, match=f"class_loss_weight.*{weight:g}"):
        ClassGate(LinearHead((6,)), classes=3, class_loss_weight=weight)


def test_a_shrunk_gate_is_in_the_same_mode():
    gate = Gate(LinearHead((5,))).eval()
    assert not any(part.training for part in gate.shrink(torch.tensor([1, 3])).modules())


def test_gate_logits_are_float32_whatever_the_input():
    for gate in (Gate(LinearHead((6,))), ClassGate(LinearHead((6,)), classes=3)):
        out = gate.bfloat16()(torch.randn(3, 6).bfloat16())
        assert out.dtype == gate.gate_logit(out).dtype == torch.float32


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("feature", [(512,), (32, 14, 14)], ids=str)
def test_the_head_survives_the_papers_rate(feature, scale):
    """Adam at 0.01 on wide features of any scale: a narrow ReLU layer dies here, this head must not."""
    for seed in range(3):
        torch.manual_seed(seed)
        direction = torch.randn(feature) / 4
        y = (torch.rand(512) < 0.3).float()
        x = (torch.relu(torch.randn(512, *feature)) + y.view(-1, *[1] * len(feature)) * direction.relu()) * scale
        gate = Gate(LinearHead(feature))
        optimizer = torch.optim.Adam(gate.parameters(), lr=0.01)
        for step in range(60):
            batch = slice(step * 64 % 512, step * 64 % 512 + 64)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(gate(x[batch]), y[batch])
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        assert auc(gate(x).detach(), y.bool()) > 0.95
