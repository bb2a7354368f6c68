"""Mine hard negatives: windows of streams without the word that the network mistakes for it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from penstock.datasets.progress import tracked
from penstock.gating.network import GatedNetwork
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import log_odds
from penstock.wakeword.clips import ClipSet
from penstock.wakeword.scoring import stream_windows, window_outputs
from penstock.wakeword.streams import StreamSpec, synthesize_stream

MINED = -3.0
"""Log-odds above which a window without the word is a hard negative."""

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def mine_hard_negatives(
    net: GatedNetwork,
    stream_config: StreamConfig,
    clips: ClipSet,
    word: str,
    *,
    hours: float,
    seed: int,
    per_hour: int = 600,
) -> tuple[Floats, Labels]:
    """Score streams without the word, and return the windows that the network most mistakes for it.

    Returns:
        x: (windows, values, frames); y: (windows,), the network's best class other than the word.
    """
    mined: list[Floats] = []
    labels: list[Labels] = []
    for number in tracked(range(math.ceil(2 * hours)), "mining"):
        stream = synthesize_stream(StreamSpec(1800.0 * min(1.0, 2 * hours), word, 0), clips, seed + number)
        x, _ = stream_windows(stream_config, stream.samples)
        logits, _ = window_outputs(net, x)
        scores = log_odds(logits, 1)
        worst = np.argsort(-scores)[: round(per_hour * stream.seconds / 3600)]
        worst = worst[scores[worst] > MINED]
        logits[:, 1] = -np.inf
        mined.append(x[worst])
        labels.append(logits[worst].argmax(1))
    return np.concatenate(mined), np.concatenate(labels)
