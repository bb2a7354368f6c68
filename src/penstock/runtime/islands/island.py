"""An island runs one stage: it receives frames, stops them or sends them on, and gives answers back.

    sender ═══▶ meet ──▶ work ──▶ gate ──▶ Sender ═══▶ the next island
           ◀═══ answers ◀───────────┘◀── settled ◀═══

It keeps nothing that a kill would lose: who sent a frame has it until it is answered, and sends it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.errors import DeliveryError, StorageError, WireError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.engines import Engine, OnnxRuntime, RemoteEngine
from penstock.runtime.islands.delivery import AlreadyAnswered, Inbox, Key, NewFrame, Outbox, key_of
from penstock.runtime.islands.executor import Callbacks, Executor, Job, LocalExecutor, RemoteExecutor
from penstock.runtime.islands.links.connection import Connection, Connector
from penstock.runtime.islands.ops.shadow_audit import Drift, ShadowAudit, ShadowTally
from penstock.runtime.islands.peer import Peer
from penstock.runtime.islands.protocol import (
    VERSION,
    Accepted,
    Answer,
    Dropped,
    Fault,
    Frame,
    Goodbye,
    Hello,
    Reason,
    Refused,
    Welcome,
    decode_up,
    values_of,
    with_payload,
)
from penstock.runtime.islands.uplink import Backoff, Uplink, makes_sense_for
from penstock.runtime.pipeline import is_finite, probability_of

LOG = logging.getLogger("penstock.island")

GREETING_S = 10.0
"""How long a connection may be silent before its Hello."""


@dataclass
class Counts:
    """What an island has done since it started."""

    frames: int = 0
    duplicates: int = 0
    stopped: int = 0
    forwarded: int = 0
    answered: int = 0
    received_bytes: int = 0
    forwarded_bytes: int = 0
    dropped: dict[Reason, int] = field(default_factory=dict)
    refused: dict[Fault, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Downstream:
    """Where frames that pass are sent.

    Attributes:
        dial: connects to the next island.
        outbox: keeps what has no answer from there yet.
        deflate: write payloads deflated where that is smaller.
    """

    connector: Connector
    outbox: Outbox
    deflate: bool = False
    backoff: Backoff = Backoff()


def check_place(manifest: Manifest, stage: int, *, sends_on: bool) -> None:
    """Refuse a stage that a bundle has not, and one that does not send on though it must, or the other way round.

    Raises:
        DeliveryError: when an island cannot stand there.
    """
    last = len(manifest.stages)
    if not 1 <= stage <= last:
        raise DeliveryError(f"there is no stage {stage}: this bundle has stages 1 to {last}.")
    if sends_on != (stage < last):
        raise DeliveryError(
            f"stage {stage} of {last} is the last and sends nothing on."
            if sends_on
            else f"stage {stage} of {last} must know the next island's address."
        )


class Island:
    """One stage of a bundle, between those before it and the one behind.

    Args:
        stage: its number, counted from 1.
        onward: where to send what passes; None for the last stage.
        window: how many frames of a sender may be on their way, neither accepted nor answered.
        memory: how many answers are remembered, to say them again to who did not get them.
        engine: what runs the stage; None for onnxruntime, here.
        batch: how many frames are run at once here, if so many wait.
        audit: the share of what the gate stops that is let through, to see what becomes of it.
    """

    def __init__(
        self,
        bundle: Bundle,
        stage: int,
        *,
        downstream: Downstream | None = None,
        engine: Engine | RemoteEngine | None = None,
        window: int = 64,
        memory: int = 1024,
        batch: int = 16,
        threads: int = 1,
        audit: float = 0.0,
    ):
        check_place(bundle.manifest, stage, sends_on=downstream is not None)
        self.manifest, self.number, self.stage = bundle.manifest, stage, bundle.manifest.stages[stage - 1]
        self.counts = Counts()
        self.audit, self.drift = ShadowAudit(audit), Drift()
        self._audited = {secrets.randbits(64): self.audit.here, secrets.randbits(64): self.audit.later}
        self._audits, self._positives = 0, self.manifest.positives
        self._here: deque[float] = deque(maxlen=1000)  # seconds from a frame's arrival to its decision
        self._id = bytes.fromhex(self.manifest.id)
        self._short = int.from_bytes(self._id[:8], "big")
        finished = Callbacks(self._worked, lambda key, reason: self._answer(key, Dropped(*key, reason)))
        if engine is None:
            engine = OnnxRuntime.of(self.stage, bundle.graphs[stage - 1], threads=threads)
        self._bench: Executor = (
            RemoteExecutor(engine, finished)
            if isinstance(engine, RemoteEngine)
            else LocalExecutor(engine, finished, most=window, batch=batch)
        )
        self._window = window
        self._inbox = Inbox(memory)
        self._peers: dict[Key, Peer] = {}
        self._scores: dict[Key, tuple[float, ...]] = {}
        self._again: set[asyncio.Task[None]] = set()  # frames that are taken once more
        self._meeting: set[Peer] = set()
        self._leaving = False
        self._onward = downstream
        self._sender: Uplink | None = None
        if downstream is not None:
            hello = Hello(self._id, stage + 1)
            self._sender = Uplink(
                downstream.connector,
                hello,
                downstream.outbox,
                self._settled,
                backoff=downstream.backoff,
                makes_sense=makes_sense_for(self.manifest),
            )

    @property
    def connected(self) -> bool:
        """Whether the next island is there; for the last one always."""
        return self._sender is None or self._sender.connected

    @property
    def refused(self) -> bool:
        """Whether the next island is there, and does not want us: it runs another bundle, or another stage."""
        return self._sender is not None and self._sender.refusal is not None

    @property
    def waiting(self) -> int:
        """How many frames wait for the next island's answer."""
        return 0 if self._onward is None else len(self._onward.outbox)

    @property
    def leaving(self) -> bool:
        """Whether it takes no more frames."""
        return self._leaving

    def quantiles(self, at: Sequence[float]) -> dict[float, float]:
        """Return quantiles of the seconds from a frame's arrival to its decision, of the last thousand; none before."""
        seconds = sorted(self._here)
        return {q: seconds[min(int(q * len(seconds)), len(seconds) - 1)] for q in at} if seconds else {}

    async def run(self) -> None:
        """Work until cancelled."""
        tasks = [asyncio.ensure_future(self._bench.run())]
        if self._sender is not None:
            tasks.append(asyncio.ensure_future(self._sender.run()))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def drain(self, within_s: float) -> bool:
        """Take no more frames, and answer what is here; return whether all of it was answered in time."""
        self._leaving = True
        for peer in self._meeting:
            peer.enqueue(Goodbye("this island is about to end"))
        try:
            await asyncio.wait_for(self._answered(), within_s)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        return True

    async def meet(self, connection: Connection) -> None:
        """Take frames from one sender, until the connection ends."""
        peer = Peer(connection)
        try:
            if await self._greeted(connection, peer):
                self._meeting.add(peer)
                while (content := await connection.receive()) is not None:
                    await self._take(content, peer)
                    await peer.said()  # who does not listen is not listened to
        finally:
            self._meeting.discard(peer)
            await peer.close()

    async def _greeted(self, connection: Connection, peer: Peer) -> bool:
        try:
            content = await asyncio.wait_for(connection.receive(), GREETING_S)
        except (TimeoutError, asyncio.TimeoutError):
            return self._refuse(peer, Fault.UNEXPECTED, f"no Hello came within {GREETING_S:g} s.")
        if content is None:
            return False
        try:
            hello = decode_up(content)
        except WireError as error:
            return self._refuse(peer, Fault.GARBAGE, str(error))
        if not isinstance(hello, Hello):
            return self._refuse(peer, Fault.UNEXPECTED, "the first message of a sender is Hello.")
        if hello.version != VERSION:
            text = f"protocol {hello.version} came; this island speaks {VERSION}."
            return self._refuse(peer, Fault.WRONG_VERSION, text)
        if hello.bundle != self._id:
            text = f"frames for bundle {hello.bundle[:8].hex()} came; this island runs {self._id[:8].hex()}."
            return self._refuse(peer, Fault.FOREIGN_BUNDLE, text)
        if hello.stage != self.number:
            return self._refuse(peer, Fault.WRONG_STAGE, f"frames for stage {hello.stage} came; this is {self.number}.")
        peer.enqueue(Goodbye("this island is about to end") if self._leaving else Welcome(self._window))
        return not self._leaving

    def _refuse(self, peer: Peer, fault: Fault, text: str, frame: Frame | None = None) -> bool:
        self.counts.refused[fault] = self.counts.refused.get(fault, 0) + 1
        peer.enqueue(Refused(fault, text, *((0, 0) if frame is None else key_of(frame))))
        return False

    async def _take(self, content: bytes, peer: Peer) -> None:
        """Take a message: a new frame waits for its turn, which may make its sender wait."""
        try:
            frame = decode_up(content)
        except WireError as error:
            self._refuse(peer, Fault.GARBAGE, str(error))
            return
        if not isinstance(frame, Frame):
            self._refuse(peer, Fault.UNEXPECTED, "a second Hello came.")
            return
        if frame.bundle != self._short:
            self._refuse(peer, Fault.FOREIGN_BUNDLE, "a frame of another bundle came.", frame)
            return
        try:
            values = self._values(frame)
        except WireError as error:
            self._refuse(peer, Fault.WRONG_SIZE, str(error), frame)
            return
        self.counts.frames += 1
        self.counts.received_bytes += len(frame.payload)
        key = key_of(frame)
        known = self._inbox.receive(key)
        if isinstance(known, AlreadyAnswered):
            self.counts.duplicates += 1
            peer.enqueue(known.answer)
            return
        self._peers[key] = peer  # where it was last sent from is where its answer goes
        if isinstance(known, NewFrame):
            try:
                await self._bench.take(Job(frame, key, values, time.perf_counter()))
            except BaseException:  # the link broke meanwhile: when the frame comes again it must be new
                self._inbox.forget(key)
                other = self._peers.pop(key, None)
                if other is not None and other is not peer:  # it has come again, over another link
                    again = asyncio.ensure_future(self._take(content, other))
                    self._again.add(again)
                    again.add_done_callback(self._again.discard)
                raise
        else:
            self.counts.duplicates += 1
            if self._onward is not None and key in self._onward.outbox:
                peer.enqueue(Accepted(*key))

    def _values(self, frame: Frame) -> np.ndarray:
        takes = self.stage.takes
        values = np.frombuffer(values_of(frame, takes.payload_bytes), takes.numpy_dtype).reshape(takes.shape)
        if values.dtype.kind == "f" and not is_finite(values):
            raise WireError("NaN or infinity came in a payload.")
        return values

    async def _worked(self, arrived: Job, values: np.ndarray, logit: float | None) -> None:
        """Answer a frame, or send it on."""
        frame, key, rule = arrived.frame, arrived.key, self.stage.gate
        self._here.append(time.perf_counter() - arrived.at_s)
        score: tuple[float, ...] = () if logit is None else (probability_of(logit),)
        stops = rule is not None and logit is not None and not logit >= rule.threshold and not frame.audit
        if rule is not None and not frame.audit:
            self.drift.see(stops)
        if stops:
            self.counts.stopped += 1
            self._answer(key, Answer(*key, self.manifest.background, self.number, score))
            if self._audits_next(self.audit.here):
                self._let_through(frame, values.tobytes(), self.audit.here)
        elif self._sender is None or self._onward is None:
            logits = tuple(values.tolist())
            self._answer(key, Answer(*key, int(values.argmax()), 0, score, logits, frame.audit))
        else:
            self._scores[key] = score
            downstream = with_payload(frame, values.tobytes(), deflate=self._onward.deflate)
            self.counts.forwarded += 1
            self.counts.forwarded_bytes += len(downstream.payload)
            try:
                await self._sender.send(downstream)
            except StorageError:
                LOG.exception("a frame could not be kept for the next island, and is reported as dropped")
                self._scores.pop(key, None)
                self.audit.dropped += not frame.audit
                self._answer(key, Dropped(*key, Reason.BUFFER_FULL))
            if key in self._peers:  # it may have been answered while it waited for room
                self._peers[key].enqueue(Accepted(*key))

    def _audits_next(self, of: ShadowTally) -> bool:
        """Note a sample that was stopped; say whether it is let through."""
        return self.stage.gate is not None and self._sender is not None and self.audit.takes(of)

    def _let_through(self, frame: Frame, values: bytes, of: ShadowTally) -> None:
        """Send a stopped frame on for the audit, if there is room, in a stream of our own: it was answered already."""
        assert self._sender is not None and self._onward is not None
        self._audits += 1
        stream = next(stream for stream, sampled in self._audited.items() if sampled is of)
        ours = frame._replace(stream=stream, sequence=self._audits, audit=True, deadline_ms=0)
        downstream = with_payload(ours, values, deflate=self._onward.deflate)
        with contextlib.suppress(StorageError):  # a full disk costs the audit a sample
            if self._sender.offer(downstream):
                self.counts.forwarded += 1
                self.counts.forwarded_bytes += len(downstream.payload)

    def _settled(self, frame: Frame, message: Answer | Dropped) -> None:
        """Pass on what the next island says of a frame."""
        positive = isinstance(message, Answer) and message.label in self._positives
        if frame.stream in self._audited:
            if isinstance(message, Answer):
                self._audited[frame.stream].judge(positive=positive)
            return
        if not frame.audit:
            self.audit.answered += isinstance(message, Answer)
            self.audit.dropped += isinstance(message, Dropped)
        if isinstance(message, Answer) and not frame.audit:
            if not message.stopped_by:
                self.audit.passed += positive
            elif self._audits_next(self.audit.later):
                self._let_through(frame, values_of(frame, self.stage.gives.payload_bytes), self.audit.later)
        key = key_of(frame)
        scores = self._scores.pop(key, ())
        if isinstance(message, Answer):
            message = message._replace(scores=(*scores, *message.scores))
        self._answer(key, message)

    def _answer(self, key: Key, message: Answer | Dropped) -> None:
        if isinstance(message, Dropped):
            self.counts.dropped[message.reason] = self.counts.dropped.get(message.reason, 0) + 1
        else:
            self.counts.answered += 1
        self._inbox.answer(key, message)
        peer = self._peers.pop(key, None)
        if peer is not None:
            peer.enqueue(message)

    async def _answered(self) -> None:
        while len(self._inbox):
            await asyncio.sleep(0.01)
        for peer in tuple(self._meeting):
            await peer.said()
