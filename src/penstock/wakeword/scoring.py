"""Score every window of a stream in batches, as a listener does but faster; mine hard negatives by their scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.datasets.progress import tracked
from penstock.evaluation.outputs import collect, gate_logits
from penstock.gating.network import GatedNetwork
from penstock.gating.temporary_mode import temporary_mode
from penstock.runtime.cascade import exit_stages
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import LIMIT, log_odds
from penstock.runtime.streaming.features import LogMel, features
from penstock.wakeword.clips import ClipSet
from penstock.wakeword.streams import StreamSpec, SyntheticStream, synthesize_stream
from penstock.wakeword.thresholds import ScoredStream

MINED = -3.0  # log-odds above which a window without the word is a hard negative
Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def score_stream(
    net: GatedNetwork, stream_config: StreamConfig, stream: SyntheticStream
) -> tuple[ScoredStream, npt.NDArray[np.int64]]:
    """Score all windows of a stream; return the scores, and the stage at which each window ended, counted from 1."""
    x, times_s = stream_windows(stream_config, stream.samples)
    logits, gates = window_outputs(net, x)
    exit_stage = exit_stages(gates, net.thresholds, samples=len(x))
    scores = np.where(exit_stage == len(net.stages), log_odds(logits, 1), -LIMIT)
    return ScoredStream(times_s, scores, stream_config.detector, stream.truths, stream.seconds), exit_stage


def stream_windows(stream_config: StreamConfig, samples: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return all windows of a stream as a view (windows, values, frames), and the end of each in seconds."""
    frontend = stream_config.frontend
    assert isinstance(frontend, LogMel)
    frames = stream_config.standardised(features(samples, frontend).T)
    x = np.lib.stride_tricks.sliding_window_view(frames, stream_config.frames, axis=0)[:: stream_config.hop]
    ends = frontend.samples(stream_config.frames) + np.arange(len(x)) * stream_config.hop * frontend.hop
    return x, ends / frontend.rate_hz


def window_outputs(net: GatedNetwork, x: Floats, batch_size: int = 512) -> tuple[Floats, list[Floats | None]]:
    """Return the class logits of all windows and each gate's logits, with all gates open."""
    starts = range(0, len(x), batch_size)
    windows = (torch.from_numpy(np.ascontiguousarray(x[start : start + batch_size])) for start in starts)
    with temporary_mode(net, training=False):
        outputs = collect(lambda batch: gate_logits(net, batch), ((batch, torch.empty(0)) for batch in windows))
    return outputs.logits.numpy(), [None if gate is None else gate.numpy() for gate in outputs.gates]


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
