"""The contestants: how each is trained, what it answers, and what it costs.

All but "two networks" start from "yours", have it as their teacher and are trained for as long as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from penstock.comparison.config import EARLY_EXIT, GATE_ONLY, GATED, TWO_NETWORKS, YOURS, CompareConfig
from penstock.comparison.early_exit import EQUAL_WEIGHTS, EXIT, exit_outputs
from penstock.comparison.points import Answers, Costs, choose_threshold, measured
from penstock.comparison.tiny import SHARES, check_input, tiny, widths
from penstock.datasets.loading import Data, batches
from penstock.errors import LayerError
from penstock.evaluation.cost import gated_cost
from penstock.evaluation.outputs import Forward, checked_batches, collect, gate_logits
from penstock.evaluation.threshold_path import TYPICAL_LOSSES
from penstock.gating.layers import LayerConfig
from penstock.gating.network import GatedNetwork
from penstock.gating.surgery import gate, ungate
from penstock.training.config import FitConfig, Hardware
from penstock.training.fit import fit

LONGER = 4
"""Times as many epochs for a small network, which starts from scratch."""


@dataclass(frozen=True)
class Task:
    """What contestants of one seed are trained on and for; see `CompareConfig`."""

    train: Data
    validation: Data
    config: CompareConfig
    seed: int

    def fitted(self, model: nn.Module, at: float | str, longer: int = 1, **choices: Any) -> GatedNetwork:
        """Return a network, gated and trained; ``choices`` are ``layer`` and arguments of `fit`."""
        config = self.config
        example, _ = next(batches(self.train, batch_size=2))
        torch.manual_seed(self.seed)
        layer = choices.pop("layer", LayerConfig())
        net = gate(model, example, at, layer=layer, background=config.background)
        fit_config = FitConfig(
            epochs=longer * config.epochs,
            batch_size=config.batch_size,
            seed=self.seed,
            progress=config.progress,
            hardware=Hardware(precision="float32"),  # "auto" is decided by a measurement, and so may change
        )
        fit(net, self.train, config=fit_config, **choices)
        return net


@dataclass(frozen=True)
class Contestant:
    """A trained contestant, in evaluation mode.

    Attributes:
        networks: run one after the other: one network that is cut in two or not at all, or two.
        outputs: logits of the whole, the score that is compared with the threshold, and the labels of an exit.
        costs: of a sample.
    """

    networks: tuple[GatedNetwork, ...]
    outputs: Forward
    costs: Costs

    def answers(self, data: Data) -> Answers:
        """Return its answers to each sample of a data set."""
        (net, *_) = self.networks
        labelled = checked_batches(data, net.spec.classes, progress="measuring")
        return Answers.of(collect(self.outputs, labelled), net.background)


def train_yours(model: nn.Module, task: Task) -> GatedNetwork:
    """Return the user's network alone, trained."""
    return task.fitted(model, at=0)


def yours(net: GatedNetwork) -> Contestant:
    """Return the user's network as a contestant: it has a threshold of its own, and always runs whole."""
    return Contestant((net,), _scored(net), Costs(_macs(net), 0, _input_bytes(net), 0))


def gated(net: GatedNetwork, task: Task) -> Contestant:
    """Train gate, mask and network, from the trained network on."""
    teacher = _plain(net)
    trained = task.fitted(teacher, task.config.at, layer=LayerConfig(keep=task.config.keep), teacher=teacher)
    return _cut(trained, lambda x: gate_logits(trained, x))


def gate_only(net: GatedNetwork, task: Task) -> Contestant:
    """Train a gate alone: whatever passes is answered as before."""
    teacher = _plain(net)
    trained = task.fitted(teacher, task.config.at, layer=LayerConfig("gate"), teacher=teacher, train_only="gates")
    return _cut(trained, lambda x: gate_logits(trained, x))


def early_exit(net: GatedNetwork, task: Task) -> Contestant:
    """Train an exit and the network, jointly."""
    teacher = _plain(net)
    trained = task.fitted(teacher, task.config.at, layer=EXIT, teacher=teacher, objective=EQUAL_WEIGHTS)
    return _cut(trained, exit_outputs(trained))


def two_networks(net: GatedNetwork, task: Task) -> Contestant:
    """Train small networks to stand in front; return the one that makes the whole cheapest on validation data."""
    spec = net.spec
    check_input(torch.empty(0, dtype=getattr(torch, spec.example_dtype)))
    found = widths(spec.example_shape, spec.classes, _macs(net))
    if not found:
        raise LayerError(f"no small network has at most {SHARES[-1]:.0%} of yours' {_macs(net):,} MACs.")
    console, tried = Console(stderr=True, quiet=not task.config.progress), []
    for number, width in enumerate(found, start=1):
        console.print(f"  small network {number} of {len(found)}, width {width}")
        torch.manual_seed(task.seed)
        small = tiny(spec.example_shape, spec.classes, width)
        tried.append(in_front(task.fitted(small, at=0, longer=LONGER, teacher=_plain(net)), net))
    return min(tried, key=lambda one: macs_on(one.answers(task.validation), one.costs))


def in_front(small: GatedNetwork, net: GatedNetwork) -> Contestant:
    """Return two networks: the small one wakes the other, which gets the whole input."""
    score = _scored(small)

    def outputs(x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        _, scores = score(x)
        return net(x).logits, list(scores)

    return Contestant((small, net), outputs, Costs(_macs(small), _macs(net), 0, _input_bytes(net)))


def macs_on(answers: Answers, costs: Costs) -> float:
    """Return the MACs a sample at 1:9, summed over typical losses: whatever loss is asked for, the choice is one."""
    found = (measured(answers, costs, choose_threshold(answers, allowed)) for allowed in TYPICAL_LOSSES)
    return sum(one["costs"][0].macs for one in found)


TRAINED: dict[str, Callable[[GatedNetwork, Task], Contestant]] = {
    YOURS: lambda net, task: yours(net),
    GATED: gated,
    GATE_ONLY: gate_only,
    EARLY_EXIT: early_exit,
    TWO_NETWORKS: two_networks,
}
"""How to train each contestant, given the user's trained network; raises LayerError if it cannot be built for it."""


def _cut(net: GatedNetwork, outputs: Forward) -> Contestant:
    """Return a network that is cut in two as a contestant."""
    cost = gated_cost(net, torch.tensor([1, 2]))  # of a sample that ends at the cut, and of one that goes on
    (first, whole), (_, payload) = cost.macs.tolist(), cost.payload_bytes.tolist()
    return Contestant((net,), outputs, Costs(first, whole - first, 0, payload))


def _scored(net: GatedNetwork) -> Forward:
    """Return the function that computes logits and the log-odds of the positives.

    They order samples as minus the log-probability of the background does, and do not saturate.
    """

    def forward(x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        logits = net(x).logits.double()
        positive = torch.arange(logits.shape[1]) != net.background
        return logits, [logits[:, positive].logsumexp(1) - logits[:, net.background]]

    return forward


def _plain(net: GatedNetwork) -> nn.Module:
    model = ungate(net)
    assert isinstance(model, nn.Module)
    return model.eval()


def _macs(net: GatedNetwork) -> int:
    return sum(net.spec.macs)


def _input_bytes(net: GatedNetwork) -> int:
    return prod(net.spec.example_shape) * getattr(torch, net.spec.example_dtype).itemsize
