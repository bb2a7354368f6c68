"""What an island has done since it started."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.runtime.islands.protocol import DropReason, Fault

LATENCIES = 1000  # how many latencies the quantiles are computed from


@dataclass
class IslandStats:
    """Counters, and the latest latencies, from receiving a frame to the gate's decision."""

    frames: int = 0  # received, duplicates included
    duplicates: int = 0
    stopped: int = 0
    forwarded: int = 0
    answered: int = 0
    received_bytes: int = 0
    forwarded_bytes: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
    refused: Counter[Fault] = field(default_factory=Counter)
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))

    def latency_quantiles(self, quantiles: Sequence[float]) -> dict[float, float]:
        """Return quantiles of the latest latencies in seconds; empty before the first frame."""
        ordered = sorted(self.latencies_s)
        return {q: ordered[min(int(q * len(ordered)), len(ordered) - 1)] for q in quantiles} if ordered else {}
