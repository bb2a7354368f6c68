"""An island runs one stage of a bundle. This module connects its parts and decides at the gate.

    client ═══▶ Receiver ──▶ Executor ──▶ _on_output ──┬─ stopped, or last stage ──▶ Receiver.answer ═══▶ client
                decode       run the      the gate     │
                and check    stage        decides      └─ passed ──▶ Uplink ═══▶ next island
                                                                       │
    client ◀═══ Receiver.answer ◀────────── _on_reply ◀────────────────┘

An island keeps nothing that a kill would lose: the sender of a frame keeps it until it is answered, and sends it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass

import numpy as np

from penstock.errors import DeliveryError, StorageError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.cascade import gate_score, passes
from penstock.runtime.engines import Engine, RemoteEngine, load_engine
from penstock.runtime.islands.delivery import Key, Outbox, key_of
from penstock.runtime.islands.executor import Callbacks, Executor, Job, LocalExecutor, RemoteExecutor
from penstock.runtime.islands.links.link import Connection, Connector
from penstock.runtime.islands.ops.drift import DriftDetector
from penstock.runtime.islands.ops.shadow_audit import ShadowAudit, ShadowSampler
from penstock.runtime.islands.protocol import Answer, Dropped, DropReason, Frame, Hello, with_payload
from penstock.runtime.islands.receiver import Receiver
from penstock.runtime.islands.stats import IslandStats
from penstock.runtime.islands.uplink import Backoff, Uplink, answer_validator

LOG = logging.getLogger("penstock.island")


@dataclass(frozen=True)
class IslandConfig:
    """How an island works."""

    window: int = 64  # how many frames of a client may be in flight, neither accepted nor answered
    memory: int = 1024  # how many answers are remembered, to repeat them for clients that missed them
    batch: int = 16  # how many waiting frames a slow stage runs at once
    threads: int = 1  # of the stage; 0 for all cores
    shadow_rate: float = 0.0  # the share of stopped frames that is forwarded as shadow samples


@dataclass(frozen=True)
class Downstream:
    """The next island."""

    connector: Connector
    outbox: Outbox  # keeps the frames that it has not answered
    deflate: bool = False  # deflate payloads if that makes them smaller
    backoff: Backoff = Backoff()


class Island:
    """One stage of a bundle, between its clients and the next island.

    Args:
        stage: its number, counted from 1.
        downstream: the next island; None for the last stage.
        engine: runs the stage; None for onnxruntime in this process.

    Raises:
        DeliveryError: see `check_stage`.
    """

    def __init__(
        self,
        bundle: Bundle,
        stage: int,
        *,
        downstream: Downstream | None = None,
        engine: Engine | RemoteEngine | None = None,
        config: IslandConfig = IslandConfig(),
    ):
        check_stage(bundle.manifest, stage, has_next=downstream is not None)
        self.manifest, self.number, self.stage = bundle.manifest, stage, bundle.manifest.stages[stage - 1]
        self.stats, self.drift, self.shadow_audit = IslandStats(), DriftDetector(), ShadowAudit(config.shadow_rate)
        if engine is None:
            engine = load_engine(bundle, stage, threads=config.threads)
        callbacks = Callbacks(self._on_output, self._on_failure)
        self._executor: Executor = (
            RemoteExecutor(engine, callbacks)
            if isinstance(engine, RemoteEngine)
            else LocalExecutor(engine, callbacks, capacity=config.window, batch=config.batch)
        )
        self._receiver = Receiver(
            self.manifest, stage, self._executor.submit, self.stats, window=config.window, memory=config.memory
        )
        self._downstream = downstream
        self._scores: dict[Key, tuple[float, ...]] = {}  # this gate's, until the next island's answer
        self._uplink: Uplink | None = None
        self._shadow: ShadowSampler | None = None
        if downstream is not None:
            self._uplink = Uplink(
                downstream.connector,
                Hello(bytes.fromhex(self.manifest.id), stage + 1),
                downstream.outbox,
                self._on_reply,
                backoff=downstream.backoff,
                is_valid=answer_validator(self.manifest),
            )
            self._shadow = ShadowSampler(self.shadow_audit, self.manifest, stage, self._offer)

    @property
    def connected(self) -> bool:
        """Whether the next island is connected; always true for the last stage."""
        return self._uplink is None or self._uplink.connected

    @property
    def refused(self) -> bool:
        """Whether the next island refuses this one: it runs another bundle or stage."""
        return self._uplink is not None and self._uplink.refusal is not None

    @property
    def waiting(self) -> int:
        """How many frames wait for the next island's answer."""
        return 0 if self._downstream is None else len(self._downstream.outbox)

    @property
    def draining(self) -> bool:
        """Whether it accepts no more frames."""
        return self._receiver.draining

    async def run(self) -> None:
        """Execute and forward frames until cancelled."""
        tasks = [asyncio.ensure_future(self._executor.run())]
        if self._uplink is not None:
            tasks.append(asyncio.ensure_future(self._uplink.run()))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def serve(self, connection: Connection) -> None:
        """Receive the frames of one client until its connection ends."""
        await self._receiver.serve(connection)

    async def drain(self, timeout_s: float) -> bool:
        """Accept no more frames, and answer those that are here; return whether all were answered in time."""
        try:
            await asyncio.wait_for(self._receiver.drain(), timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        return True

    async def _on_output(self, job: Job, values: np.ndarray, gate_logit: float | None) -> None:
        """Decide at the gate: answer a frame, or forward it."""
        frame, key, gate = job.frame, job.key, self.stage.gate
        self.stats.latencies_s.append(time.perf_counter() - job.received_s)
        scores: tuple[float, ...] = () if gate_logit is None else (gate_score(gate_logit),)
        stopped = False
        if gate is not None and gate_logit is not None and not frame.shadow:
            stopped = not passes(gate_logit, gate.threshold)
            self.drift.add(stopped)
        if stopped:
            self.stats.stopped += 1
            self._receiver.answer(key, Answer(*key, self.manifest.background, self.number, True, scores))
            if self._shadow is not None:
                self._shadow.on_stopped(frame, values)
        elif self._uplink is None:
            logits = tuple(values.tolist())
            label = int(values.argmax())
            self._receiver.answer(key, Answer(*key, label, self.number, False, scores, logits, frame.shadow))
        else:
            self._scores[key] = scores
            await self._forward(frame, values.tobytes())

    def _on_failure(self, key: Key, reason: DropReason) -> None:
        """Report a frame that the executor could not run."""
        self._receiver.answer(key, Dropped(*key, reason))

    async def _forward(self, frame: Frame, values: bytes) -> None:
        """Hand a frame to the uplink, and tell its client."""
        assert self._uplink is not None
        key, outgoing = key_of(frame), self._outgoing(frame, values)
        self.stats.forwarded += 1
        self.stats.forwarded_bytes += len(outgoing.payload)
        try:
            await self._uplink.send(outgoing)
        except StorageError:
            LOG.exception("cannot store a frame for the next island; dropping it")
            self._scores.pop(key, None)
            self.shadow_audit.dropped += not frame.shadow
            self._receiver.answer(key, Dropped(*key, DropReason.BUFFER_FULL))
        self._receiver.accept(key)

    def _offer(self, frame: Frame, values: bytes) -> None:
        """Forward a shadow sample if there is plenty of room."""
        assert self._uplink is not None
        outgoing = self._outgoing(frame, values)
        with contextlib.suppress(StorageError):  # a full disk costs a shadow sample, no more
            if self._uplink.offer(outgoing):
                self.stats.forwarded += 1
                self.stats.forwarded_bytes += len(outgoing.payload)

    def _outgoing(self, frame: Frame, values: bytes) -> Frame:
        assert self._downstream is not None
        return with_payload(frame, values, deflate=self._downstream.deflate)

    def _on_reply(self, frame: Frame, reply: Answer | Dropped) -> None:
        """Pass the next island's reply on to the client of the frame."""
        assert self._shadow is not None
        if self._shadow.on_reply(frame, reply):
            return  # it was a shadow sample of this island: no client waits for it
        key = key_of(frame)
        scores = self._scores.pop(key, ())
        if isinstance(reply, Answer):
            reply = reply._replace(scores=(*scores, *reply.scores))
        self._receiver.answer(key, reply)


def check_stage(manifest: Manifest, stage: int, *, has_next: bool) -> None:
    """Raise a DeliveryError unless the bundle has such a stage, and only its last one has no next island."""
    last = len(manifest.stages)
    if not 1 <= stage <= last:
        raise DeliveryError(f"stage must be 1 to {last} for this bundle, got {stage}.")
    if has_next and stage == last:
        raise DeliveryError(f"stage {stage} of {last} is the last: it takes no next island.")
    if not has_next and stage < last:
        raise DeliveryError(f"stage {stage} of {last} needs the address of the next island (--next).")
