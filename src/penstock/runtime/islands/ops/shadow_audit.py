"""Estimate in the field what share of positives a gate loses.

Nobody notices what a gate stops by mistake. So an island forwards a small random share of the stopped frames to the
end of the network: shadow samples. Counting the positives among them and scaling up gives an unbiased estimate of how
many were lost. "Positive" is what the last stage predicts; there are no human labels in the field.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.errors import DeliveryError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.intervals import poisson_interval
from penstock.runtime.islands.protocol import Answer, Dropped, Frame, unpack_payload

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """An estimate with its confidence bounds."""

    low: float
    estimate: float
    high: float


@dataclass
class ShadowTally:
    """Stopped frames, some of which were forwarded as shadow samples."""

    seen: int = 0  # how many were stopped
    answered: int = 0  # of those, forwarded and answered
    positive: int = 0  # of those, positive in the last stage

    def positives(self, confidence: float) -> Estimate:
        """Estimate how many of all stopped frames are positive."""
        unknown = self.seen - self.answered
        if not self.answered:
            return Estimate(0.0, 0.0, float(unknown))
        scale, least, most = self.seen / self.answered, self.positive, self.positive + unknown
        low, high = poisson_interval(self.positive, confidence)
        return Estimate(*(float(min(max(scale * count, least), most)) for count in (low, self.positive, high)))


@dataclass
class ShadowAudit:
    """Draws shadow samples and counts what became of them.

    A frame that passes this gate may be positive and still be stopped by a later gate. It counts as passed here, so
    some of those are drawn as well.
    """

    rate: float  # the share of stopped frames that is drawn
    rng: random.Random = field(default_factory=random.Random, repr=False)
    here: ShadowTally = field(default_factory=ShadowTally)  # frames that this gate stopped
    later: ShadowTally = field(default_factory=ShadowTally)  # frames that a later gate stopped
    passed: int = 0  # frames that no gate stopped and that the last stage found positive
    answered: int = 0  # frames that passed this gate and were answered
    dropped: int = 0  # frames that passed this gate and were not

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise DeliveryError(f"shadow_rate must be between 0 and 1, got {self.rate}.")

    def draw(self, tally: ShadowTally) -> bool:
        """Count a stopped frame; return whether to forward it as a shadow sample."""
        if not self.rate:
            return False
        tally.seen += 1
        return self.rng.random() < self.rate

    def lost_rate(self, confidence: float = CONFIDENCE) -> Estimate | None:
        """Estimate the share of positives that this gate loses; None if nothing is known yet.

        Counts among shadow samples are scaled up, with exact Poisson intervals. Several such counts share the allowed
        error. Frames that passed and were dropped later are assumed to be like those that were answered.
        """
        if not self.here.answered or (self.dropped and not self.answered):
            return None
        counts = 1 + bool(self.later.seen) + bool(self.dropped)
        confidence = 1 - (1 - confidence) / counts
        lost, later = self.here.positives(confidence), self.later.positives(confidence)
        passed, scale = Estimate(*[float(self.passed)] * 3), 1.0
        if self.dropped:
            low, high = poisson_interval(self.passed, confidence)
            passed, scale = Estimate(low, self.passed, high), 1 + self.dropped / self.answered
        return Estimate(
            _share(lost.low, scale * (later.high + passed.high)),
            _share(lost.estimate, scale * (later.estimate + passed.estimate)),
            _share(lost.high, scale * (later.low + passed.low)),
        )


class ShadowSampler:
    """Forwards the shadow samples of one island, and feeds their answers to the audit.

    Shadow samples travel in streams of their own, one per tally, because their clients have been answered already.

    Args:
        forward: sends a frame with these values to the next island, if there is room.
    """

    def __init__(self, audit: ShadowAudit, manifest: Manifest, stage: int, forward: Callable[[Frame, bytes], None]):
        self._audit, self._forward = audit, forward
        self._positives = manifest.positives
        self._has_gate = manifest.stages[stage - 1].gate is not None
        self._payload_bytes = manifest.stages[stage - 1].output.payload_bytes
        self._here, self._later = secrets.randbits(64), secrets.randbits(64)
        self._tallies = {self._here: audit.here, self._later: audit.later}
        self._sequence = 0

    def on_stopped(self, frame: Frame, values: np.ndarray) -> None:
        """Draw from the frames that this gate stops."""
        if self._audit.draw(self._audit.here):
            self._send(frame, values.tobytes(), self._here)

    def on_reply(self, frame: Frame, reply: Answer | Dropped) -> bool:
        """Count the next island's reply; return whether the frame was a shadow sample of this island."""
        is_answer = isinstance(reply, Answer)
        positive = isinstance(reply, Answer) and reply.label in self._positives
        if frame.stream in self._tallies:
            tally = self._tallies[frame.stream]
            tally.answered += is_answer
            tally.positive += positive
            return True
        if frame.shadow:  # of an island before this one
            return False
        self._audit.answered += is_answer
        self._audit.dropped += not is_answer
        if isinstance(reply, Answer) and not reply.stopped:
            self._audit.passed += positive
        elif is_answer and self._has_gate and self._audit.draw(self._audit.later):
            self._send(frame, unpack_payload(frame, self._payload_bytes), self._later)
        return False

    def _send(self, frame: Frame, values: bytes, stream: int) -> None:
        self._sequence += 1
        self._forward(frame._replace(stream=stream, sequence=self._sequence, shadow=True, deadline_ms=0), values)


def _share(lost: float, passed: float) -> float:
    return lost / (lost + passed) if lost + passed else 0.0
