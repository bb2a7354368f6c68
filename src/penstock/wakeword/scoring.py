"""Score every window of a stream in batches: the same scores as a listener's, and faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.evaluation.outputs import collect, gate_logits
from penstock.gating.network import GatedNetwork
from penstock.gating.temporary_mode import temporary_mode
from penstock.runtime.cascade import exit_stages
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import LIMIT, DetectorConfig, log_odds
from penstock.runtime.streaming.features import LogMel, features
from penstock.wakeword.metrics import Utterance
from penstock.wakeword.streams import SyntheticStream
from penstock.wakeword.thresholds import ScoredStream, scored_stream

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class StreamScores:
    """The score of every window of a stream, without the stream itself, which is a hundred times as large.

    Attributes:
        truths: where the word is.
        seconds: length of the stream.
        times_s: (windows,), the end of each window.
        scores: (windows,), log-odds of the word; -10 where a gate stopped the window.
        exit_stage: (windows,), the stage at which each window ended, counted from 1.
    """

    truths: tuple[Utterance, ...]
    seconds: float
    times_s: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    exit_stage: npt.NDArray[np.int64]

    def scored_stream(self, detector: DetectorConfig) -> ScoredStream:
        """Return it as a stream that can be scored at any threshold."""
        return scored_stream(self.times_s, self.scores, detector, self.truths, self.seconds)


def score_stream(net: GatedNetwork, stream_config: StreamConfig, stream: SyntheticStream) -> StreamScores:
    """Score all windows of a stream."""
    x, times_s = stream_windows(stream_config, stream.samples)
    logits, gates = window_outputs(net, x)
    exit_stage = exit_stages(gates, net.thresholds, samples=len(x))
    scores = np.where(exit_stage == len(net.stages), log_odds(logits, 1), -LIMIT)
    return StreamScores(stream.truths, stream.seconds, times_s, scores, exit_stage)


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


def reached_shares(scores: Sequence[StreamScores], stages: int) -> tuple[float, ...]:
    """Return the share of the windows that reach each stage."""
    exit_stage = np.concatenate([one.exit_stage for one in scores])
    return tuple(float(np.mean(exit_stage >= stage)) for stage in range(1, stages + 1))
