"""How fast: a training step and a prediction, as ratios in one run, interleaved, best of several."""

from __future__ import annotations

import torch

import penstock as ps
from benchmarks.figures import Figure
from penstock.evaluation.cost import gated_cost
from penstock.evaluation.timing import best_seconds
from penstock.models.resnet import resnet8

BATCH = 256
ROUNDS = 12


def training() -> list[Figure]:
    """A step of the gated network over one of the plain, as `fit` does them: forward, loss, backward, Adam."""
    x = torch.randn(BATCH, 1, 28, 28).to(memory_format=torch.channels_last)
    y = torch.randint(0, 6, (BATCH,))
    bfloat16 = ps.Hardware().bfloat16()
    objective = ps.Objective(alpha=0.5, beta=0.55)

    def step_of(at: float | int):
        torch.manual_seed(0)
        net = ps.gate(resnet8(), x[:2], at=at).train().to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
                out = net(x)
                loss = objective(net, out, y).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    seconds = best_seconds({"plain": step_of(0), "gated": step_of(0.4)}, rounds=ROUNDS, warm_up=3)
    ratio = seconds["gated"] / seconds["plain"]
    details = seconds | {"bfloat16": bfloat16, "rounds": ROUNDS, "batch": BATCH}
    return [Figure("training step, gated / plain (8-block ResNet, 28×28, batch 256)", ratio, "<=", 1.10, details)]


def predict() -> list[Figure]:
    """Predict on a 1:9 stream over its ideal: stage 1 on all samples, and the rest timed alone, times the pass rate.

    The gate here lets exactly the tenth of the batch with the highest scores pass, and keeps 3 % of the features.
    """
    torch.manual_seed(0)
    x = torch.randn(BATCH, 1, 28, 28)
    model = resnet8().eval()
    net = ps.gate(model, x[:2], at=0.4).eval()
    layer = net.layers[0]
    with torch.no_grad():
        layer.compression.phi.copy_((torch.rand_like(layer.compression.phi) < 0.03).float())
        features = net.stages[0](x)
        net.thresholds = [net(x).gates[0].quantile(0.9).item()]
    passed = int((~net.predict(x).stopped).sum())

    def without_gradient(run, *inputs):
        def call() -> None:
            with torch.no_grad():
                run(*inputs)

        return call

    seconds = best_seconds(
        {
            "plain": without_gradient(model, x),
            "predict": lambda: net.predict(x),
            "stage 1": without_gradient(net.stages[0], x),
            "rest": without_gradient(net.stages[1], features),
        },
        rounds=200,
        warm_up=5,
    )
    rate = passed / BATCH
    ideal = seconds["stage 1"] + rate * seconds["rest"]
    macs = gated_cost(net, net.predict(x).exit_stage).macs.double().mean().item()
    details = seconds | {
        "pass_rate": rate,
        "ideal": ideal,
        "predict_of_plain": seconds["predict"] / seconds["plain"],
        "ideal_of_plain": ideal / seconds["plain"],
        "macs_of_plain": macs / sum(net.spec.macs),
    }
    name = "predict on a 1:9 stream, batch 256 / ideal (stage 1 + pass rate × the rest)"
    return [Figure(name, seconds["predict"] / ideal, "<=", 1.10, details)]
