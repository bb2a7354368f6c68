"""The methods of the paper: each builds a network from a model and trains it.

Baseline()             the plain network
BranchyNet()           an entropy-based exit at the same position
G(alpha)               gate only
C(beta)                compression only
GC(alpha, beta)        gate and compression, at one or several positions
GateInput(block, ...)  compression at 40 % depth, with a gate that reads another block
TwoStage(...)          gate and network trained alternately, with no gradient between them
Dropout(rate)          control: the plain network with dropout in place of the layer

How masks are binarised during training depends on the budget, not on the method: `Masks`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from torch import Tensor, nn

from penstock.errors import DataError
from penstock.gating.layers.config import LayerConfig, MaskKind
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective
from penstock.gating.surgery import gate
from penstock.models.blocknet import DEPTH, LINEAR_BLOCKS, BlockNet
from penstock.training.config import FitConfig
from penstock.training.fit import fit
from reproduction.baselines import BranchyObjective, branchynet, fit_in_two_stages

DEFAULT_BLOCK = 4
"""Block after which the paper places a single layer: 40 % of the depth."""


@dataclass(frozen=True)
class Masks:
    """How masks are trained.

    Attributes:
        drawn: whether masks are sampled during training; the paper thresholds them.
        p: the norm of the transmission cost, L_p.
    """

    drawn: bool = False
    p: float = 2.0

    @property
    def kind(self) -> MaskKind:
        """How φ becomes binary during training."""
        return "drawn" if self.drawn else "thresholded"


class Method(Protocol):
    """A method that an experiment compares."""

    @property
    def title(self) -> str:
        """The name shown in tables."""
        ...

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network to train; ``model`` stays untouched."""
        ...

    def train(self, net: GatedNetwork, train: Any, masks: Masks, config: FitConfig) -> list[str]:
        """Train it in place and return the warnings of `fit`."""
        ...


class _Joint:
    """Joint training of all parts with one objective."""

    def train(self, net: GatedNetwork, train: Any, masks: Masks, config: FitConfig) -> list[str]:
        """Train it in place."""
        return fit(net, train, objective=self.objective(masks), config=config).warnings

    def objective(self, masks: Masks) -> Objective:
        """Return the training objective."""
        return Objective()


@dataclass(frozen=True)
class Baseline(_Joint):
    """The plain network."""

    title = "Baseline"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network without gates."""
        return gate(model, example, at=0)


@dataclass(frozen=True)
class BranchyNet(_Joint):
    """An entropy-based exit; its loss and the final loss have equal weights."""

    block: int = DEFAULT_BLOCK
    title = "BranchyNet"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its exit."""
        return branchynet(model, example, at=[cut_after(self.block, model)])

    def objective(self, masks: Masks) -> Objective:
        """Return the sum of both cross-entropies."""
        return BranchyObjective(alpha=0.5)


@dataclass(frozen=True)
class G(_Joint):
    """A gate without compression."""

    alpha: float
    block: int = DEFAULT_BLOCK
    title = "G only"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its gate."""
        return gate(model, example, at=[cut_after(self.block, model)], layer=LayerConfig("gate", head="linear"))

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective with β = 0."""
        return Objective(alpha=self.alpha, beta=0.0)


@dataclass(frozen=True)
class C(_Joint):
    """Compression without a gate."""

    beta: float
    block: int = DEFAULT_BLOCK
    title = "C only"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its compression."""
        return gate(
            model, example, at=[cut_after(self.block, model)], layer=LayerConfig("compression", mask=masks.kind)
        )

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective with α = 0."""
        return Objective(alpha=0.0, beta=self.beta, p=masks.p)


@dataclass(frozen=True)
class GC(_Joint):
    """Gated compression after one or several blocks."""

    alpha: float
    beta: float
    blocks: tuple[int, ...] = (DEFAULT_BLOCK,)
    title = "GC"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the gated network."""
        places = [cut_after(block, model) for block in self.blocks]
        return gate(model, example, at=places, layer=LayerConfig(mask=masks.kind, head="linear"))

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective; α and β are divided among the layers, so that their sums do not change."""
        return Objective(alpha=self.alpha, beta=self.beta / len(self.blocks), p=masks.p)


@dataclass(frozen=True)
class GateInput(_Joint):
    """Compression at 40 % depth, and a gate that reads the output of another block; block 0 is the raw input."""

    block: int
    alpha: float
    beta: float
    title = "gate input"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with gate and compression at different positions."""
        if self.block == DEFAULT_BLOCK:
            return GC(self.alpha, self.beta).build(model, example, masks)
        if not isinstance(model, BlockNet):
            raise DataError(f"GateInput requires a network of {DEPTH} blocks (BlockNet), got {type(model).__name__}.")
        layers = {
            DEFAULT_BLOCK: LayerConfig("compression", mask=masks.kind),
            self.block: LayerConfig("gate", head="linear"),
        }
        places = sorted(layers)
        bounds = [0, *places, DEPTH]
        parts: list[nn.Module] = [model.blocks[a:b] for a, b in pairwise(bounds)]
        stages = [*parts[:-1], nn.Sequential(*parts[-1], model.hidden, model.head)]  # type: ignore[misc]
        return gate(stages, example, layer=[layers[place] for place in places])

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective."""
        return Objective(alpha=self.alpha, beta=self.beta, p=masks.p)


@dataclass(frozen=True)
class TwoStage:
    """Gate and network trained alternately, ``switch_every`` epochs each, with no gradient between them."""

    switch_every: int
    alpha: float
    beta: float | None
    title = "two stages"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the gated network, without compression if β is None."""
        return (G(self.alpha) if self.beta is None else GC(self.alpha, self.beta)).build(model, example, masks)

    def train(self, net: GatedNetwork, train: Any, masks: Masks, config: FitConfig) -> list[str]:
        """Train it in place, by turns."""
        objective = Objective(alpha=self.alpha, beta=self.beta or 0.0, p=masks.p)
        turns = fit_in_two_stages(net, train, switch_every=self.switch_every, objective=objective, config=config)
        return turns[-1].warnings


@dataclass(frozen=True)
class Dropout(_Joint):
    """The plain network with dropout after a block: the effect of noise alone, without gate or mask."""

    rate: float
    block: int = DEFAULT_BLOCK
    title = "Dropout"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its dropout."""
        if not isinstance(model, BlockNet):
            raise DataError(f"Dropout requires a network of {DEPTH} blocks (BlockNet), got {type(model).__name__}.")
        noisy = deepcopy(model)
        noisy.blocks[self.block - 1] = nn.Sequential(noisy.blocks[self.block - 1], nn.Dropout(self.rate))
        return gate(noisy, example, at=0)


def cut_after(block: int, model: nn.Module) -> str | float:
    """Return the cut after a block, counted from 1; a relative depth for networks that are not a `BlockNet`.

    >>> from penstock.models import resnet8
    >>> cut_after(4, resnet8()), cut_after(8, resnet8()), cut_after(4, nn.Sequential())
    ('blocks.3', 'blocks', 0.4)
    """
    if not isinstance(model, BlockNet):
        return block / (DEPTH + LINEAR_BLOCKS)
    return "blocks" if block == DEPTH else f"blocks.{block - 1}"


def method_key(method: Method) -> str:
    """Return a short unique name for use in file names.

    >>> method_key(GC(0.5, 0.55)), method_key(Baseline()), method_key(GC(0.5, 0.55, (2, 4)))
    ('GC-a0.5-b0.55-4', 'Baseline', 'GC-a0.5-b0.55-2.4')
    """
    short = {"alpha": "a", "beta": "b", "switch_every": "n", "rate": "r"}
    parts = [type(method).__name__]
    for name, value in vars(method).items():
        text = ".".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if value is not None else "off"
        parts.append(short.get(name, "") + text)
    return "-".join(parts)
