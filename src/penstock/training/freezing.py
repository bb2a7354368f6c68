"""Freeze parts of a gated network for the time of a training run."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

from penstock.errors import TrainingError
from penstock.gating.network import GatedNetwork
from penstock.training.config import TrainOnly


class Freezing:
    """What is not trained: whole modules, in evaluation mode, and single parameters.

    Args:
        train_only: "gates" freezes the network and the masks, so that whatever passes is answered as before; "gates and
            masks" freezes the network; "all" nothing.
        frozen: names of modules of the network before it was gated.

    Raises:
        TrainingError: when the network has no module of that name, or no gate to train.
    """

    def __init__(self, net: GatedNetwork, train_only: TrainOnly = "all", frozen: Collection[str] = ()):
        if train_only != "all" and not net.active():
            raise TrainingError(f"train_only={train_only!r} needs a gate, and this network has none.")
        self.modules = list(net.stages) if train_only != "all" else _named(net, frozen)
        self.parameters = [parameter for module in self.modules for parameter in module.parameters()]
        if train_only == "gates":
            self.parameters += [layer.compression.phi for layer in net.layers if layer.compression is not None]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Freeze; then let train again what could be trained before."""
        thawed = [parameter for parameter in self.parameters if parameter.requires_grad]
        for parameter in thawed:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in thawed:
                parameter.requires_grad_(True)

    def set_modes(self) -> None:
        """Put frozen modules into evaluation mode, which training mode of the whole network undoes."""
        for module in self.modules:
            module.eval()


def _named(net: GatedNetwork, names: Collection[str]) -> list[nn.Module]:
    """Return the modules of these names; a module that was cut is its parts in each stage."""
    if isinstance(names, str):
        names = (names,)
    known = [(name, module) for stage in net.stages for name, module in stage.named_modules() if name]
    found = []
    for wanted in names:
        parts = [module for name, module in known if name == wanted]
        if not parts:
            close = difflib.get_close_matches(wanted, {name for name, _ in known}, n=3)
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise TrainingError(f"frozen: the network has no module {wanted!r}.{hint}")
        found += parts
    return found
