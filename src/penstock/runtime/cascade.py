"""The gate cascade in numpy: which stage a sample exits at.

A sample passes a gate when the gate's logit is at least the threshold; NaN never passes. Stages are counted from 1; a
sample that passes every gate exits at the last stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def passes(gate_logit: float, threshold: float) -> bool:
    """Return whether a sample passes a gate.

    >>> passes(0.5, 0.5), passes(float("nan"), -1e9)
    (True, False)
    """
    return gate_logit >= threshold


def batch_passes(gate_logits: np.ndarray, threshold: float) -> npt.NDArray[np.bool_]:
    """Return which samples of a batch pass a gate: (batch,) -> (batch,)."""
    return gate_logits.astype(np.float64) >= threshold  # in float32 numpy would round the threshold


def exit_stages(
    gate_logits: Sequence[np.ndarray | None], thresholds: Sequence[float | None], *, samples: int
) -> npt.NDArray[np.int64]:
    """Return the stage at which each sample exits.

    Args:
        gate_logits: of each gate, (samples,); None where a stage has no gate.
        thresholds: of each gate; None where every sample passes.
        samples: number of samples.

    Returns:
        (samples,), counted from 1; ``len(gate_logits) + 1`` for samples that pass every gate.

    >>> exit_stages([np.array([-1.0, 2.0]), None], [0.0, None], samples=2).tolist()
    [1, 3]
    """
    stages = np.full(samples, len(gate_logits) + 1, np.int64)
    numbered = enumerate(zip(gate_logits, thresholds, strict=True), start=1)
    for number, (logits, threshold) in reversed(list(numbered)):  # the first gate that a sample fails counts
        if logits is not None and threshold is not None:
            stages[~batch_passes(logits, threshold)] = number
    return stages


def gate_score(gate_logit: float) -> float:
    """Return a gate's score: the sigmoid of its logit."""
    return 0.5 * (1 + math.tanh(0.5 * gate_logit))


def gate_scores(gate_logits: np.ndarray) -> np.ndarray:
    """Return the scores of a batch: the sigmoid of each logit.

    >>> gate_scores(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * (1 + np.tanh(0.5 * gate_logits))  # type: ignore[no-any-return]
