"""The methods of the paper as small values: each builds a network out of a model, and trains it.

Baseline()             the network as it is
BranchyNet()           an exit by entropy at the same place
G(alpha)               a gate, no compression
C(beta)                a compression, no gate
GC(alpha, beta)        both; several of them where several depths are given
GateInput(block, ...)  a compression at 40 % depth, its gate reading another block
TwoStage(...)          gate and network trained by turns, with no gradient between them
Dropout(rate)          the network as it is, with dropout where the others have their layer: a control

How a mask becomes binary while training is no matter of the method but of the budget: `Masks`.
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
from penstock.models.eight_blocks import DEPTH, LINEAR_BLOCKS, BlockNet
from penstock.training.fit import fit
from reproduction.baselines import BranchyObjective, branchynet, fit_in_two_stages

DEFAULT_BLOCK = 4
"""The block behind which the paper puts a single layer: 40 % of the depth."""


@dataclass(frozen=True)
class Masks:
    """How masks are trained.

    Attributes:
        drawn: they are drawn while training, rather than thresholded as the paper's are.
        p: the transmission cost is L_p.
    """

    drawn: bool = False
    p: float = 2.0

    @property
    def kind(self) -> MaskKind:
        """How φ becomes binary during training."""
        return "drawn" if self.drawn else "thresholded"


class Method(Protocol):
    """What an experiment compares."""

    @property
    def title(self) -> str:
        """The method as a reader knows it."""
        ...

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network to train; ``model`` stays untouched."""
        ...

    def train(self, net: GatedNetwork, train: Any, masks: Masks, **options: Any) -> list[str]:
        """Train it in place and return what `fit` warned of; options are those of `fit`."""
        ...


class _Joint:
    """Training of everything at once, by an objective."""

    def train(self, net: GatedNetwork, train: Any, masks: Masks, **options: Any) -> list[str]:
        """Train it in place."""
        return fit(net, train, objective=self.objective(masks), **options).warnings

    def objective(self, masks: Masks) -> Objective:
        """Return what is minimised."""
        return Objective()


@dataclass(frozen=True)
class Baseline(_Joint):
    """The network as it is."""

    title = "Baseline"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network without layers."""
        return gate(model, example, at=0)


@dataclass(frozen=True)
class BranchyNet(_Joint):
    """An exit by entropy; exit and end weigh the same."""

    block: int = DEFAULT_BLOCK
    title = "BranchyNet"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its exit."""
        return branchynet(model, example, at=[behind(self.block, model)])

    def objective(self, masks: Masks) -> Objective:
        """Return the sum of both cross-entropies."""
        return BranchyObjective(alpha=0.5)


@dataclass(frozen=True)
class G(_Joint):
    """A gate without a compression."""

    alpha: float
    block: int = DEFAULT_BLOCK
    title = "G only"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its gate."""
        return gate(model, example, at=[behind(self.block, model)], layer=LayerConfig("gate"))

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective with β = 0."""
        return Objective(alpha=self.alpha, beta=0.0)


@dataclass(frozen=True)
class C(_Joint):
    """A compression without a gate."""

    beta: float
    block: int = DEFAULT_BLOCK
    title = "C only"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its compression."""
        return gate(model, example, at=[behind(self.block, model)], layer=LayerConfig("compression", mask=masks.kind))

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective with α = 0."""
        return Objective(alpha=0.0, beta=self.beta, p=masks.p)


@dataclass(frozen=True)
class GC(_Joint):
    """Gated compression behind one block, or behind several."""

    alpha: float
    beta: float
    blocks: tuple[int, ...] = (DEFAULT_BLOCK,)
    title = "GC"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the gated network."""
        places = [behind(block, model) for block in self.blocks]
        return gate(model, example, at=places, layer=LayerConfig(mask=masks.kind))

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective; α and β are shared out among several layers, so that their sums stay."""
        return Objective(alpha=self.alpha, beta=self.beta / len(self.blocks), p=masks.p)


@dataclass(frozen=True)
class GateInput(_Joint):
    """A compression at 40 % depth, and a gate that reads what another block gives; block 0 is the raw input."""

    block: int
    alpha: float
    beta: float
    title = "gate input"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with the two halves apart."""
        if self.block == DEFAULT_BLOCK:
            return GC(self.alpha, self.beta).build(model, example, masks)
        if not isinstance(model, BlockNet):
            raise DataError(
                f"the gate's input is moved in networks of {DEPTH} blocks only; {type(model).__name__} came."
            )
        layers = {DEFAULT_BLOCK: LayerConfig("compression", mask=masks.kind), self.block: LayerConfig("gate")}
        places = sorted(layers)
        bounds = [0, *places, DEPTH]
        parts: list[nn.Module] = [model.blocks[a:b] for a, b in pairwise(bounds)]
        stages = [*parts[:-1], nn.Sequential(*parts[-1], model.hidden, model.head)]  # type: ignore[misc]
        return gate(stages, example, layer=[layers[place] for place in places])

    def objective(self, masks: Masks) -> Objective:
        """Return the paper's objective; each half takes its own weight."""
        return Objective(alpha=self.alpha, beta=self.beta, p=masks.p)


@dataclass(frozen=True)
class TwoStage:
    """Gate and network trained by turns of ``switch_every`` epochs, with no gradient between them."""

    switch_every: int
    alpha: float
    beta: float | None
    title = "two stages"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the gated network; without a compression where there is no β."""
        return (G(self.alpha) if self.beta is None else GC(self.alpha, self.beta)).build(model, example, masks)

    def train(self, net: GatedNetwork, train: Any, masks: Masks, **options: Any) -> list[str]:
        """Train it in place, by turns."""
        objective = Objective(alpha=self.alpha, beta=self.beta or 0.0, p=masks.p)
        turns = fit_in_two_stages(net, train, switch_every=self.switch_every, objective=objective, **options)
        return turns[-1].warnings


@dataclass(frozen=True)
class Dropout(_Joint):
    """The network as it is, with dropout behind a block: what noise alone does, without a gate or a mask."""

    rate: float
    block: int = DEFAULT_BLOCK
    title = "Dropout"

    def build(self, model: nn.Module, example: Tensor, masks: Masks) -> GatedNetwork:
        """Return the network with its dropout."""
        if not isinstance(model, BlockNet):
            raise DataError(f"dropout is put into networks of {DEPTH} blocks only; {type(model).__name__} came.")
        noisy = deepcopy(model)
        noisy.blocks[self.block - 1] = nn.Sequential(noisy.blocks[self.block - 1], nn.Dropout(self.rate))
        return gate(noisy, example, at=0)


def behind(block: int, model: nn.Module) -> str | float:
    """Return the place behind a block, counted from 1 as the paper does; a depth, in a network without such blocks.

    >>> from penstock.models import resnet8
    >>> behind(4, resnet8()), behind(8, resnet8()), behind(4, nn.Sequential())
    ('blocks.3', 'blocks', 0.4)
    """
    if not isinstance(model, BlockNet):
        return block / (DEPTH + LINEAR_BLOCKS)
    return "blocks" if block == DEPTH else f"blocks.{block - 1}"


def method_key(method: Method) -> str:
    """Return a short name that tells methods apart, for files.

    >>> method_key(GC(0.5, 0.55)), method_key(Baseline()), method_key(GC(0.5, 0.55, (2, 4)))
    ('GC-a0.5-b0.55-4', 'Baseline', 'GC-a0.5-b0.55-2.4')
    """
    short = {"alpha": "a", "beta": "b", "switch_every": "n", "rate": "r"}
    parts = [type(method).__name__]
    for name, value in vars(method).items():
        text = ".".join(map(str, value)) if isinstance(value, tuple) else f"{value:g}" if value is not None else "off"
        parts.append(short.get(name, "") + text)
    return "-".join(parts)
