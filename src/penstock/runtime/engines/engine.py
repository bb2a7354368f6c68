"""What an engine does: run one stage, in this process on a batch, or remotely on single samples."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


class Output(NamedTuple):
    """Output of a stage for a batch.

    Attributes:
        values: (batch, ...), packed values; class logits for the last stage.
        gate: (batch,), gate logits; None if the stage has no gate.
    """

    values: np.ndarray
    gate: np.ndarray | None


class Engine(Protocol):
    """Runs one stage in this process."""

    def run(self, values: np.ndarray) -> Output:
        """Run the stage on a batch: the network's input, or the values of the previous stage."""


@runtime_checkable
class RemoteEngine(Protocol):
    """Runs one stage in other processes or on other machines, which form batches themselves."""

    async def run_sample(self, values: np.ndarray) -> Output:
        """Run the stage on one sample, concurrently with others; return a batch of one."""
