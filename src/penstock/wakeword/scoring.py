"""Score every window of a stream in batches: the same scores as a listener's, and faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.gating.layers import Gate
from penstock.gating.network import GatedNetwork
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
    logits, gate_logits = window_outputs(net, x)
    stages = len(net.stages)
    exit_stage = np.full(len(x), stages)
    for number, threshold in reversed(list(enumerate(net.thresholds))):
        gate_logit = gate_logits[number]
        if threshold is not None and gate_logit is not None:
            exit_stage[gate_logit < threshold] = number + 1
    scores = np.where(exit_stage == stages, log_odds(logits, 1), -LIMIT)
    return StreamScores(stream.truths, stream.seconds, times_s, scores, exit_stage)


def stream_windows(stream_config: StreamConfig, samples: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return all windows of a stream as a view (windows, values, frames), and the end of each in seconds."""
    frontend = stream_config.frontend
    assert isinstance(frontend, LogMel)
    frames = stream_config.standardised(features(samples, frontend).T)
    x = np.lib.stride_tricks.sliding_window_view(frames, stream_config.frames, axis=0)[:: stream_config.hop]
    ends = frontend.samples(stream_config.frames) + np.arange(len(x)) * stream_config.hop * frontend.hop
    return x, ends / frontend.rate_hz


@torch.no_grad()
def window_outputs(net: GatedNetwork, x: Floats, batch_size: int = 512) -> tuple[Floats, list[Floats | None]]:
    """Return the class logits of all windows and each gate's logits, with all gates open."""
    net.eval()
    logits: list[Floats] = []
    gate_logits: list[list[Floats | None]] = []
    for start in range(0, len(x), batch_size):
        out = net(torch.from_numpy(np.ascontiguousarray(x[start : start + batch_size])))
        logits.append(out.logits.float().numpy())
        gate_logits.append([_gate_logit(layer.gate, raw) for layer, raw in zip(net.layers, out.gates, strict=True)])
    columns: Sequence[Any] = [*zip(*gate_logits, strict=True)]
    return np.concatenate(logits), [None if column[0] is None else np.concatenate(column) for column in columns]


def _gate_logit(gate: Gate | None, raw: torch.Tensor | None) -> Floats | None:
    return None if gate is None or raw is None else gate.gate_logit(raw).float().numpy()


def reached_shares(scores: Sequence[StreamScores], stages: int) -> tuple[float, ...]:
    """Return the share of the windows that reach each stage."""
    exit_stage = np.concatenate([one.exit_stage for one in scores])
    return tuple(float(np.mean(exit_stage >= stage)) for stage in range(1, stages + 1))
