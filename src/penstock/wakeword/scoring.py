"""What a network says of every window of a stream, all at once: what a listener says one by one, and faster."""

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
    """What a network says of each window of a stream; the stream itself, a hundred times as large, is let go.

    Attributes:
        truths: where the word is said in it.
        seconds: its length.
        times_s: their ends.
        scores: log-odds of the word; -10 for what the gates stop.
        stopped_at: by which gate; -1 by none.
    """

    truths: tuple[Utterance, ...]
    seconds: float
    times_s: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    stopped_at: npt.NDArray[np.int64]

    def scored_stream(self, detector: DetectorConfig) -> ScoredStream:
        """Return it as thresholds are tried on it."""
        return scored_stream(self.times_s, self.scores, detector, self.truths, self.seconds)


def trace(net: GatedNetwork, stream_config: StreamConfig, stream: SyntheticStream) -> StreamScores:
    """Judge all windows of a stream."""
    x, times_s = stream_windows(stream_config, stream.samples)
    logits, gates = run(net, x)
    stopped = np.full(len(x), -1)
    for number, threshold in reversed(list(enumerate(net.thresholds))):
        said = gates[number]
        if threshold is not None and said is not None:
            stopped[said < threshold] = number
    scores = np.where(stopped < 0, log_odds(logits, 1), -LIMIT)
    return StreamScores(stream.truths, stream.seconds, times_s, scores, stopped)


def stream_windows(stream_config: StreamConfig, samples: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[np.float64]]:
    """Return all windows of a stream, (windows, values, frames), a view; and the end of each."""
    frontend = stream_config.frontend
    assert isinstance(frontend, LogMel)
    frames = stream_config.standardised(features(samples, frontend).T)
    x = np.lib.stride_tricks.sliding_window_view(frames, stream_config.frames, axis=0)[:: stream_config.hop]
    ends = frontend.samples(stream_config.frames) + np.arange(len(x)) * stream_config.hop * frontend.hop
    return x, ends / frontend.rate_hz


@torch.no_grad()
def run(net: GatedNetwork, x: Floats, block: int = 512) -> tuple[Floats, list[Floats | None]]:
    """Return the logits of all windows, and what each gate says, whether it stops them or not."""
    net.eval()
    logits: list[Floats] = []
    gates: list[list[Floats | None]] = []
    for start in range(0, len(x), block):
        out = net(torch.from_numpy(np.ascontiguousarray(x[start : start + block])))
        logits.append(out.logits.float().numpy())
        gates.append([_passes(layer.gate, said) for layer, said in zip(net.layers, out.gates, strict=True)])
    columns: Sequence[Any] = [*zip(*gates, strict=True)]
    return np.concatenate(logits), [None if column[0] is None else np.concatenate(column) for column in columns]


def _passes(gate: Gate | None, said: torch.Tensor | None) -> Floats | None:
    return None if gate is None or said is None else gate.gate_logit(said).float().numpy()


def reached(traces: Sequence[StreamScores], stages: int) -> tuple[float, ...]:
    """Return the share of the windows that reach each stage."""
    stopped = np.concatenate([one.stopped_at for one in traces])
    return tuple(float(np.mean((stopped < 0) | (stopped >= number))) for number in range(stages))
