"""What an engine does: it runs one stage, here on a batch, or elsewhere on one sample among many."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


class Output(NamedTuple):
    """What a stage gives for a batch.

    Attributes:
        values: (batch, ...): packed, or the class logits of the last stage.
        gate: (batch,), the gate's logits; None where there is no gate.
    """

    values: np.ndarray
    gate: np.ndarray | None


class Engine(Protocol):
    """Runs one stage."""

    def run(self, values: np.ndarray) -> Output:
        """Run the stage on a batch: what the stage before gave, or the input."""
        ...


@runtime_checkable
class RemoteEngine(Protocol):
    """Has one stage run on other processes or machines, which make batches of their own."""

    async def ask(self, values: np.ndarray) -> Output:
        """Run the stage on one sample, while others are on their way too; return a batch of one."""
        ...
