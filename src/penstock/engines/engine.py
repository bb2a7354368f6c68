"""What an engine does: it runs one stage on a batch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

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
