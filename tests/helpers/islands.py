"""Four islands in a row over memory or gRPC links, and what their answers must be."""

import asyncio
import random
from contextlib import asynccontextmanager

import numpy as np

from helpers.bundles import ENGINES, THREE
from helpers.memory_link import MemoryLink
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.islands.delivery import Outbox
from penstock.runtime.islands.island import Downstream, Island, IslandConfig
from penstock.runtime.islands.links.grpc import GrpcServer, grpc_connector
from penstock.runtime.islands.protocol import (
    Answer,
    Frame,
)
from penstock.runtime.islands.uplink import Backoff
from penstock.runtime.pipeline import Pipeline

BUNDLE = Bundle(THREE, (b"",) * 4)
SOON = Backoff(0.001, 0.02)


class Memory:
    """Links within this process."""

    def __init__(self):
        self.link = MemoryLink()

    async def start(self, island):
        self.link.handler = island.serve

    def connector(self):
        return self.link.connector

    async def cut(self):
        self.link.cut()

    async def stop(self):
        self.link.handler = None
        self.link.cut()


class Grpc:
    """Links over real sockets, on free ports of the loopback."""

    port = 0

    async def start(self, island):
        self.island = island
        payload_bytes = island.stage.input.payload_bytes
        self.server = GrpcServer(island.serve, f"127.0.0.1:{self.port}", payload_bytes=payload_bytes)
        self.port = int(self.server.address.rpartition(":")[2])
        await self.server.start()

    def connector(self):
        async def connector():
            return await grpc_connector(f"127.0.0.1:{self.port}", timeout_s=1)()

        return connector

    async def cut(self):
        await self.server.stop(0)
        await self.start(self.island)

    async def stop(self):
        await self.server.stop(0)


LINKS = {"memory": Memory, "grpc": Grpc}


class Chain:
    """Four islands in a row, and what connects them."""

    def __init__(self, kind, engines=ENGINES, **options):
        self.engines, self.links = engines, [kind() for _ in range(4)]
        self.outbox = options.pop("outbox", lambda: Outbox(64))
        self.config = IslandConfig(**({"window": 8} | options))
        self.islands, self.tasks = [None] * 4, [None] * 4

    async def build(self, i):
        downstream = None
        if i < 3:
            downstream = Downstream(self.links[i + 1].connector(), self.outbox(), backoff=SOON)
        self.islands[i] = Island(BUNDLE, i + 1, downstream=downstream, engine=self.engines[i], config=self.config)
        self.tasks[i] = asyncio.ensure_future(self.islands[i].run())
        await self.links[i].start(self.islands[i])

    async def kill(self, i):
        """End an island without notice: what it had in memory is gone."""
        await self.links[i].stop()
        self.tasks[i].cancel()
        await asyncio.gather(self.tasks[i], return_exceptions=True)


@asynccontextmanager
async def chain(kind, engines=ENGINES, **options):
    made = Chain(LINKS[kind], engines, **options)
    for i in reversed(range(4)):
        await made.build(i)
    try:
        yield made
    finally:
        for i in range(4):
            await made.kill(i)


def samples(n, seed=0):
    return np.random.default_rng(seed).normal(0.3, 1, (n, 3)).astype(np.float32)


def check(answers, x) -> None:
    """Each sample has the answer of the chain in one process."""
    wanted = Pipeline(BUNDLE, engines=ENGINES).predict(x)
    exits = exit_stages(wanted)
    for i, answer in enumerate(answers):
        assert isinstance(answer, Answer), answer
        assert answer.label == wanted.label[i]
        assert (answer.exit_stage, answer.stopped) == (exits[i], exits[i] < 4)
        scores = [score for score in wanted.scores[i] if not np.isnan(score)]
        np.testing.assert_allclose(answer.scores, scores, atol=1e-6)
        assert bool(answer.logits) == (exits[i] == 4)


def exit_stages(results):
    return results.exit_stage


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


class SlowRemoteEngine:
    """An engine that is asked, and gives answers in any order."""

    def __init__(self, engine):
        self.engine, self.at_once, self.most = engine, 0, 0

    async def run_sample(self, values):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(random.uniform(0, 0.005))
        self.at_once -= 1
        return self.engine.run(values[None])


AWAY = [SlowRemoteEngine(engine) for engine in ENGINES]


def frame(**changed):
    short = int.from_bytes(bytes.fromhex(THREE.id)[:8], "big")
    return Frame(short, 5, 1, 0, np.ones(3, np.float32).tobytes())._replace(**changed)
