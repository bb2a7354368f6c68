"""The client of the first island: sends samples, and returns one answer for each."""

from __future__ import annotations

import asyncio
import secrets

import numpy as np

from penstock.errors import DeliveryError
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.islands.delivery import Key, Outbox, key_of
from penstock.runtime.islands.links.link import Connector
from penstock.runtime.islands.protocol import Answer, Dropped, Frame, Hello, now_us
from penstock.runtime.islands.uplink import Backoff, Uplink, answer_validator
from penstock.runtime.pipeline import check_input


class Client:
    """Sends samples through a chain of islands. Each gets one answer, whatever fails on the way, or is dropped.

        async with Client(manifest, grpc_connector("127.0.0.1:7001")) as client:
            answer = await client.predict(sample)

    Args:
        connector: connects to the first island.
        outbox: keeps samples until they are answered.
        deadline_ms: drop a sample that has no answer this long after it was captured; 0 for no deadline.

    Attributes:
        stream: identifies this client's frames.
    """

    def __init__(
        self,
        manifest: Manifest,
        connector: Connector,
        *,
        outbox: Outbox | None = None,
        deadline_ms: int = 0,
        backoff: Backoff = Backoff(),
    ):
        if not 0 <= deadline_ms < 1 << 32 or int(deadline_ms) != deadline_ms:
            raise DeliveryError(f"deadline_ms must be a whole number from 0 to {(1 << 32) - 1}, got {deadline_ms}.")
        self._input = manifest.stages[0].input
        bundle = bytes.fromhex(manifest.id)
        self._bundle_prefix = int.from_bytes(bundle[:8], "big")
        self.stream = secrets.randbits(64)
        self._sequence, self._deadline_ms = 0, deadline_ms
        self._pending: dict[Key, asyncio.Future[Answer | Dropped]] = {}
        self._runner: asyncio.Future[None] | None = None
        self.uplink = Uplink(
            connector,
            Hello(bundle, 1),
            Outbox(256) if outbox is None else outbox,
            self._on_reply,
            backoff=backoff,
            is_valid=answer_validator(manifest),
        )

    async def predict(self, sample: np.ndarray) -> Answer | Dropped:
        """Send a sample and wait for its answer."""
        return await (await self.submit(sample))

    async def submit(self, sample: np.ndarray, *, captured_us: int | None = None) -> asyncio.Future[Answer | Dropped]:
        """Send a sample and return a future for its answer; waits while the outbox is full.

        Args:
            captured_us: when the sample was captured, in microseconds since 1970; None for now.
        """
        check_input(sample[None] if isinstance(sample, np.ndarray) else sample, self._input)
        if captured_us is not None and not 0 <= captured_us < 1 << 64:
            raise DeliveryError(f"captured_us must be microseconds since 1970, at least 0, got {captured_us}.")
        if self._runner is None:
            raise DeliveryError("the client is not open: use it in `async with Client(...) as client`.")
        if self._runner.done() and not self._runner.cancelled():
            self._runner.result()  # raises what ended it
        self._sequence += 1
        frame = Frame(
            self._bundle_prefix,
            self.stream,
            self._sequence,
            now_us() if captured_us is None else captured_us,
            np.ascontiguousarray(sample).tobytes(),
            deadline_ms=self._deadline_ms,
        )
        future: asyncio.Future[Answer | Dropped] = asyncio.get_running_loop().create_future()
        self._pending[key_of(frame)] = future
        try:
            await self.uplink.send(frame)
        except BaseException:  # cancelled while the outbox was full: nobody waits for this answer
            del self._pending[key_of(frame)]
            raise
        return future

    async def __aenter__(self) -> Client:
        self._runner = asyncio.ensure_future(self.uplink.run())
        self._runner.add_done_callback(self._on_end)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        while not self._runner.done():  # a link that breaks at this moment may swallow the cancellation
            self._runner.cancel()
            await asyncio.wait({self._runner}, timeout=1.0)
        self.uplink.close()

    def _on_end(self, runner: asyncio.Future[None]) -> None:
        """Raise in all pending futures what ended the uplink: not a broken link, which would be retried."""
        error = None if runner.cancelled() else runner.exception()
        for future in self._pending.values():
            if error is not None and not future.done():
                future.set_exception(error)

    def _on_reply(self, frame: Frame, reply: Answer | Dropped) -> None:
        future = self._pending.pop(key_of(frame), None)
        if future is not None and not future.done():
            future.set_result(reply)
