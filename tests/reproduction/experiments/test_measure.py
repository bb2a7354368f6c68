"""Measurements and operating points, against plain counts."""

import numpy as np
import pytest
import torch

from helpers.tones import tones
from penstock.gating.layers import LayerConfig
from penstock.gating.surgery import gate
from penstock.models import resnet8_1d
from reproduction.baselines import branchynet
from reproduction.experiments.measure import LOSS_LEVELS, choose_operating_points, measure, stream_weights

LINEAR = LayerConfig(head="linear")  # the paper's gate


def test_what_is_measured_is_what_a_plain_count_says() -> None:
    torch.manual_seed(0)
    x, y = tones(300, 5)
    net = gate(resnet8_1d(1, 3, 4), x[:1], at=["blocks.1", "blocks.5"]).eval()
    for layer in net.layers:
        layer.gate.threshold.fill_(0.0)
    thresholds = [0.05, -0.02]
    choices = choose_operating_points(net, (x, y))._replace(points={"even": thresholds})
    measured = measure(net, (x, y), choices, positive_share=0.25)
    result = measured["points"]["even"]
    share = {True: 0.25 / (y > 0).double().mean().item(), False: 0.75 / (y == 0).double().mean().item()}
    right, stopped = 0.0, []
    with torch.no_grad():
        out = net(x)
    for i in range(len(y)):
        stops = any(out.gates[k][i].double() < thresholds[k] for k in range(2))
        label = 0 if stops else int(out.logits[i].argmax())
        right += share[int(y[i]) > 0] * (label == y[i]) / len(y)
        stopped.append(stops)
    negatives = [s for s, label in zip(stopped, y, strict=True) if label == 0]
    assert result["accuracy"] == pytest.approx(right)
    assert result["early_stopping"] == pytest.approx(np.mean(negatives))
    modes = measured["modes"]
    assert modes["incremental"][-1]["early_stopping"] == result["early_stopping"]
    assert modes["independent"][0].items() <= modes["incremental"][0].items()
    assert modes["incremental"][0]["early_stopping_at"] == measured["gates"][0]["early_stopping_at"]


def test_thresholds_lose_no_more_than_they_may() -> None:
    torch.manual_seed(0)
    x, y = tones(1000, 5)
    model = resnet8_1d(1, 3, 4)
    for net in (
        gate(model, x[:1], at=0.4, layer=LINEAR),
        gate(model, x[:1], at=[0.2, 0.4, 0.7], layer=LINEAR),
        branchynet(model, x[:1]),
    ):
        choices = choose_operating_points(net.eval(), (x, y))
        points = measure(net, (x, y), choices, positive_share=None)["points"]
        for lost in LOSS_LEVELS:
            point = points[f"lost {lost:g}"]
            assert lost - 0.005 < point["positive_lost_rate"] <= lost or point["early_stopping"] == 1
        assert points["lost 0.005"]["early_stopping"] <= points["lost 0.02"]["early_stopping"]


def test_the_accurate_point_stops_as_much_as_accuracy_allows() -> None:
    torch.manual_seed(0)
    x, y = tones(400, 5)
    model = resnet8_1d(1, 3, 4)
    for net in (gate(model, x[:1], at=0.4, layer=LINEAR).eval(), branchynet(model, x[:1]).eval()):
        (threshold,) = choose_operating_points(net, (x, y)).points["accurate"]
        with torch.no_grad():
            out = net(x)
        is_exit = out.gate_outputs[0].ndim == 2
        gate_out = out.gate_outputs[0] if is_exit else out.gates[0]

        def accuracy(at, gate_out=gate_out, is_exit=is_exit, out=out):
            if is_exit:  # by hand: leave where the entropy is low, with the exit's label
                p = gate_out.softmax(1)
                entropy = -(p * p.log()).sum(1) / np.log(3)
                stopped, label = (entropy / (1 - entropy)).log() < at, gate_out.argmax(1)
            else:
                stopped, label = gate_out < at, torch.zeros(len(y), dtype=torch.int64)
            return (torch.where(stopped, label, out.logits.argmax(1)) == y).double().mean().item()

        pass_logits = net.layers[0].gate.gate_logit(gate_out)
        gate_every_block = {at: accuracy(at) for at in [*pass_logits.tolist(), -99.0]}
        assert accuracy(threshold) >= max(gate_every_block.values()) - 0.011  # not all thresholds were tried
        higher = [accuracy(at) for at in np.quantile(pass_logits.double(), np.linspace(0, 1, 401)) if at > threshold]
        assert all(one < max(gate_every_block.values()) for one in higher)


def test_a_cascade_is_compared_at_the_loss_of_all_its_gates() -> None:
    """The early stopping that a result names is what the path's thresholds do, at the loss that it names."""
    torch.manual_seed(0)
    x, y = tones(1000, 5)
    net = gate(resnet8_1d(1, 3, 4), x[:1], at=[0.2, 0.4, 0.7]).eval()
    choices = choose_operating_points(net, (x, y))
    x, y = tones(1000, 6)
    incremental = measure(net, (x, y), choices, positive_share=None)["modes"]["incremental"]
    with torch.no_grad():
        gates = torch.stack(net(x).gates, 1).double().numpy()
    for k, path in enumerate(choices.incremental):
        scores = gates[:, : k + 1]
        for lost in LOSS_LEVELS:
            level = sorted(path.levels(scores[y > 0]))[int(lost * int((y > 0).sum()))]
            thresholds = [t - 1e-9 for t in path.thresholds(level)]
            stopped = torch.tensor([any(s < t for s, t in zip(row, thresholds, strict=True)) for row in scores])
            assert stopped[y > 0].double().mean().item() <= lost
            reported = incremental[k]["early_stopping_at"][f"{lost:g}"]
            assert reported == pytest.approx(stopped[y == 0].double().mean().item(), abs=0.003)


def test_the_weights_of_a_stream_have_its_share_and_a_mean_of_one() -> None:
    positive = torch.tensor([True] * 30 + [False] * 70)
    weights = stream_weights(positive, 0.1)
    assert weights.mean().item() == pytest.approx(1)
    assert weights[positive].sum().item() == pytest.approx(10)
