"""Islands over links answer as the pipeline in one process does, whatever breaks on the way."""

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.bundles import ENGINES, THREE
from helpers.memory_link import MemoryLink
from penstock.errors import DeliveryError, ShapeError, StorageError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import DropOldest, Key, Outbox, key_of
from penstock.runtime.islands.executor import Callbacks, Job, RemoteExecutor
from penstock.runtime.islands.island import Downstream, Island, IslandConfig
from penstock.runtime.islands.links.grpc import GrpcServer, grpc_connector
from penstock.runtime.islands.ops.shadow_audit import ShadowTally
from penstock.runtime.islands.protocol import (
    Accepted,
    Answer,
    Dropped,
    DropReason,
    Fault,
    Frame,
    Goodbye,
    Hello,
    Refused,
    Welcome,
    decode_client,
    decode_server,
    encode,
    now_us,
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


class SomeTimeElsewhere:
    """An engine that is asked, and gives answers in any order."""

    def __init__(self, engine):
        self.engine, self.at_once, self.most = engine, 0, 0

    async def run_sample(self, values):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(random.uniform(0, 0.005))
        self.at_once -= 1
        return self.engine.run(values[None])


AWAY = [SomeTimeElsewhere(engine) for engine in ENGINES]


@pytest.mark.parametrize("engines", [ENGINES, AWAY], ids=["here", "elsewhere"])
@pytest.mark.parametrize("kind", LINKS)
def test_islands_over_links_are_the_chain_in_one_process(kind, engines):
    async def story():
        x = samples(300)
        async with chain(kind, engines) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            check(await asyncio.gather(*[await client.submit(sample) for sample in x]), x)
            counts = [island.stats for island in made.islands]
        assert counts[0].frames == 300 and all(one.answered == one.frames for one in counts)
        assert all(one.duplicates == 0 and not one.dropped and not one.refused for one in counts)
        assert counts[0].forwarded == counts[1].frames == counts[0].frames - counts[0].stopped
        assert counts[0].forwarded_bytes == counts[1].received_bytes == 12 * counts[0].forwarded

    run(story())


@pytest.mark.parametrize("kind", LINKS)
def test_whatever_is_cut_and_killed_each_frame_is_answered_once(kind):
    async def story():
        x = samples(1200 if kind == "memory" else 600)
        async with chain(kind) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            await made.kill(1)  # so that frames are unanswered when the first link is cut
            futures = [await client.submit(sample) for sample in x[:16]]
            while not made.islands[0].stats.forwarded:
                await asyncio.sleep(0.001)
            await made.links[0].cut()
            while not client.uplink.resent:
                await asyncio.sleep(0.001)
            await made.build(1)

            async def trouble():
                for i in range(16 if kind == "memory" else 8):
                    await asyncio.sleep(0.02)
                    if i % 8 < 4:
                        await made.links[i % 4].cut()
                    else:
                        await made.kill(i % 4)
                        await asyncio.sleep(0.02)
                        await made.build(i % 4)

            making = asyncio.ensure_future(trouble())
            for sample in x[16:]:
                futures.append(await client.submit(sample))
                if len(futures) % 8 == 0:
                    await asyncio.sleep(0.002)
            check(await asyncio.gather(*futures), x)
            await making
            assert client.uplink.resent > 0
            assert client.uplink._outbox.in_flight == 0 and not client._pending

    run(story())


def test_while_the_next_island_is_away_samples_are_still_stopped():
    async def story():
        x = samples(60)
        stops = exit_stages(Pipeline(BUNDLE, engines=ENGINES).predict(x)) == 1
        async with chain("memory") as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            await made.kill(1)
            futures = [await client.submit(sample) for sample in x[:50]]
            await asyncio.sleep(0.1)
            assert [future.done() for future in futures] == list(stops[:50]), "stopped here, the others wait"
            assert not made.islands[0].connected
            await made.build(1)
            check(await asyncio.gather(*futures), x[:50])

    run(story())


def test_a_full_buffer_drops_its_oldest_or_makes_the_source_wait():
    async def story():
        x = np.ones((40, 3), np.float32)  # all pass the first gate
        drop = {"outbox": lambda: Outbox(4, DropOldest()), "window": 64}
        async with chain("memory", **drop) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            await made.kill(1)
            futures = [await client.submit(sample) for sample in x]
            await asyncio.sleep(0.1)
            dropped = [future.result() for future in futures if future.done()]
            assert dropped == [Dropped(client.stream, i + 1, DropReason.BUFFER_FULL) for i in range(36)]
            await made.build(1)
            check((await asyncio.gather(*futures))[36:], x[36:])
        wait = {"outbox": lambda: Outbox(4), "window": 4}
        async with chain("memory", **wait) as made:
            outbox = Outbox(4)
            async with Client(THREE, made.links[0].connector(), outbox=outbox, backoff=SOON) as client:
                await made.kill(1)
                sending = asyncio.ensure_future(asyncio.gather(*[client.submit(sample) for sample in x]))
                await asyncio.sleep(0.1)
                assert not sending.done() and outbox.full, "the source waits"
                await made.build(1)
                check(await asyncio.gather(*await sending), x)

    run(story())


def test_what_comes_too_late_is_reported():
    async def story():
        x = np.ones((5, 3), np.float32)
        async with (
            chain("memory") as made,
            Client(THREE, made.links[0].connector(), deadline_ms=80, backoff=SOON) as client,
        ):
            await made.kill(1)
            futures = [await client.submit(sample) for sample in x]
            said = await asyncio.gather(*futures)
            assert {answer.reason for answer in said} == {DropReason.TOO_LATE}
            await made.build(1)
            check([await client.predict(x[0])], x[:1])

    run(story())


def test_a_source_that_ends_reports_what_is_left():
    async def story():
        x = np.ones(3, np.float32)
        async with Client(THREE, MemoryLink().connector, outbox=Outbox(2), backoff=SOON) as client:
            asked = [asyncio.ensure_future(client.predict(x)) for _ in range(4)]
            await asyncio.sleep(0.05)
        assert [answer.reason for answer in await asyncio.gather(*asked)] == [DropReason.ENDED] * 4
        assert (await client.predict(x)).reason is DropReason.ENDED, "and what comes later, too"

    run(story())


def test_times_that_cannot_be_are_refused():
    for deadline_ms in (-1, 2**32, 0.5):
        with pytest.raises(DeliveryError, match=r"deadline_ms"):
            Client(THREE, MemoryLink().connector, deadline_ms=deadline_ms)

    async def story():
        with pytest.raises(DeliveryError, match=r"captured_us.*-1"):
            await Client(THREE, MemoryLink().connector).submit(np.ones(3, np.float32), captured_us=-1)

    run(story())


def test_a_frame_whose_link_broke_while_it_waited_is_new_when_it_comes_again():
    """Its sender is not the only one, so that it had to wait for its turn."""

    async def story():
        x = np.full(3, -1, np.float32)
        async with chain("memory", window=2) as made:
            island = made.islands[0]
            island._executor._slow = True
            made.tasks[0].cancel()  # nobody works for a while
            await asyncio.gather(made.tasks[0], return_exceptions=True)
            clients = [Client(THREE, made.links[0].connector(), backoff=SOON) for _ in range(3)]
            async with AsyncExitStack() as stack:
                for client in clients:
                    await stack.enter_async_context(client)
                asked = [asyncio.ensure_future(client.predict(x)) for client in clients for _ in range(4)]
                await asyncio.sleep(0.1)
                made.links[0].link.cut()
                await asyncio.sleep(0.1)
                made.tasks[0] = asyncio.ensure_future(island._executor.run())
                answers = await asyncio.gather(*asked)
            assert [answer.exit_stage for answer in answers] == [1] * 12 and len(island._receiver._inbox) == 0

    run(story())


def test_what_is_not_the_links_fault_is_raised():
    async def broken():
        raise AttributeError("no such thing")

    async def story():
        async with Client(THREE, broken, backoff=SOON) as client:
            for _ in range(2):
                with pytest.raises(AttributeError, match="no such thing"):
                    await client.predict(np.ones(3, np.float32))

    run(story())


def test_who_is_not_there_is_named_once(caplog):
    async def story():
        asked = []
        async with Client(THREE, grpc_connector("127.0.0.1:1", timeout_s=0.05), backoff=SOON) as client:
            asked.append(await client.submit(np.ones(3, np.float32)))
            await asyncio.sleep(0.4)
        assert (await asked[0]).reason is DropReason.ENDED

    run(story())
    assert [record.message for record in caplog.records] == ["cannot connect to 127.0.0.1:1 without TLS; retrying"]


@pytest.mark.parametrize("kind", LINKS)
def test_who_says_goodbye_and_stays_is_left_after_a_while(monkeypatch, kind):
    """However much there is to send meanwhile."""
    monkeypatch.setattr("penstock.runtime.islands.uplink.GOODBYE_TIMEOUT_S", 0.1)

    async def story():
        link, met = LINKS[kind](), []

        async def lingers(connection):
            met.append(connection)
            await connection.receive()
            await connection.send(encode(Welcome(8)))
            if len(met) == 1:
                await connection.send(encode(Goodbye("soon")))
            while (content := await connection.receive()) is not None:
                asked = decode_client(content)
                if len(met) > 1:
                    await connection.send(encode(Answer(asked.stream, asked.sequence, 0, 1, True, (0.2,))))

        await link.start(SimpleNamespace(serve=lingers, stage=THREE.stages[0]))
        async with Client(THREE, link.connector(), outbox=Outbox(4, DropOldest()), backoff=SOON) as client:
            futures = []
            for _ in range(60):
                futures.append(await client.submit(np.ones(3, np.float32)))
                await asyncio.sleep(0.01)
            said = await asyncio.gather(*futures)
            assert all(isinstance(one, Answer) for one in said[30:])
        assert len(met) == 2
        await link.stop()

    run(story())


def test_a_source_that_was_not_entered_and_what_is_no_array_are_clear_errors():
    async def story():
        client = Client(THREE, MemoryLink().connector)
        with pytest.raises(DeliveryError, match="async with Client"):
            await client.predict(np.ones(3, np.float32))
        with pytest.raises(ShapeError, match="list"):
            await client.predict([1.0, 2.0, 3.0])

    run(story())


def test_after_an_orderly_goodbye_the_next_is_dialled_at_once():
    """The last answer and the end of the connection may come in the same moment."""

    async def story():
        link, met = MemoryLink(), []

        async def leaves(connection):
            met.append(connection)
            await connection.receive()
            await connection.send(encode(Welcome(8)))
            for number in range(3):
                content = await connection.receive()
                if content is None:
                    return
                asked = decode_client(content)
                if number == 1:
                    await connection.send(encode(Goodbye("now")))
                await connection.send(encode(Answer(asked.stream, asked.sequence, 0, 1, True, (0.2,))))
                if number == 1:
                    await connection.close()
                    return

        class Recorded(Backoff):
            def delay(self, failures):
                delays.append(failures)
                return 0.001

        link.handler, delays = leaves, []
        for _ in range(30):
            async with Client(THREE, link.connector, backoff=Recorded()) as client:
                asked = [await client.submit(np.ones(3, np.float32)) for _ in range(7)]
                answers = await asyncio.wait_for(asyncio.gather(*asked), 2)
                assert [answer.sequence for answer in answers] == [1, 2, 3, 4, 5, 6, 7]
        assert len(met) == 30 * 4, "each connection answers two of the seven frames"
        assert set(delays) == {0}, "no reconnect counts as a failure"

    run(story())


def test_a_frame_that_came_again_over_a_new_link_is_not_forgotten_with_the_old_one():
    """The old link's end is noticed late: the frame has come again by then, and waits for its answer."""

    async def story():
        async with chain("memory", AWAY, window=8) as made:
            island = made.islands[3]
            island._executor._slots = asyncio.Semaphore(1)
            links, tasks, ends = [], [], []
            for _ in range(2):
                link = MemoryLink()

                async def meet(connection):
                    tasks.append(asyncio.current_task())
                    await island.serve(connection)

                link.handler = meet
                ends.append(await link.connector())
                links.append(link)
                await ends[-1].send(encode(Hello(bytes.fromhex(THREE.id), 4)))
                await ends[-1].receive()
            await island._executor._slots.acquire()  # nothing is worked on
            await ends[0].send(encode(frame()))
            await asyncio.sleep(0.02)
            await ends[1].send(encode(frame()))  # the same again
            await asyncio.sleep(0.02)
            tasks[0].cancel()
            await asyncio.sleep(0.02)
            island._executor._slots.release()
            said = decode_server(await asyncio.wait_for(ends[1].receive(), 2))
            assert isinstance(said, Answer) and (said.stream, said.sequence) == (5, 1)

    run(story())


def test_an_island_that_is_refused_by_the_next_says_so(caplog):
    async def story():
        async with chain("memory") as made:
            await made.kill(1)
            made.links[1].link.handler = made.islands[2].serve  # stage 3 where stage 2 should be
            while not made.islands[0].refused:
                await asyncio.sleep(0.01)
            assert not made.islands[0].connected
            assert "refuses this one: expected frames for stage 3, got stage 2" in caplog.text
            await made.links[1].stop()
            while made.islands[0].refused:  # who is away does not refuse
                await asyncio.sleep(0.01)
            assert not made.islands[0].connected
            await made.build(1)
            while not made.islands[0].connected:
                await asyncio.sleep(0.01)

    run(story())


def test_an_answer_that_makes_no_sense_is_a_failure(caplog):
    async def story():
        link, answers = MemoryLink(), []

        async def liar(connection):
            await connection.receive()
            await connection.send(encode(Welcome(8)))
            asked = decode_client(await connection.receive())
            await connection.send(encode(answers.pop()(asked.stream, asked.sequence)))
            await connection.receive()

        link.handler = liar
        stop = {"label": 0, "exit_stage": 1, "stopped": True}
        end = {"label": 0, "exit_stage": 4, "logits": (1.0, 0.0, 0.0)}
        lies = [stop | change for change in ({"label": 3}, {"exit_stage": 0}, {"stopped": False}, {"logits": (1.0,)})]
        lies += [stop | {"exit_stage": 5}, stop | {"scores": (0.5,) * 4}]
        lies += [end | change for change in ({"exit_stage": 3}, {"stopped": True}, {"logits": ()})]
        for lie in lies:
            answers.append(lambda stream, sequence, lie=lie: Answer(stream, sequence, **lie))
            async with Client(THREE, link.connector, backoff=SOON) as client:
                assert await client.predict(np.ones(3, np.float32)) == Dropped(client.stream, 1, DropReason.FAILED)

    run(story())
    assert caplog.text.count("answer does not fit the bundle") == 9


def test_a_welcome_alone_is_no_success():
    """Who welcomes and closes, again and again, is dialled at growing intervals."""
    dials = []

    async def story():
        link = MemoryLink()

        async def rude(connection):
            dials.append(1)
            await connection.receive()
            await connection.send(encode(Welcome(8)))
            await connection.close()

        link.handler = rude
        async with Client(THREE, link.connector, backoff=Backoff(0.01, 5)) as client:
            await client.submit(np.ones(3, np.float32))
            await asyncio.sleep(0.5)

    run(story())
    assert 2 <= len(dials) <= 9


@pytest.mark.parametrize("kind", LINKS)
def test_an_island_that_drains_answers_what_it_has(kind):
    async def story():
        x = samples(100)
        async with chain(kind, window=64) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            futures = [await client.submit(sample) for sample in x]
            await asyncio.sleep(0.05)
            assert await made.islands[1].drain(5)
            await made.kill(1)
            await made.build(1)
            check(await asyncio.gather(*futures), x)

    run(story())


def frame(**changed):
    short = int.from_bytes(bytes.fromhex(THREE.id)[:8], "big")
    return Frame(short, 5, 1, 0, np.ones(3, np.float32).tobytes())._replace(**changed)


@pytest.mark.parametrize("kind", LINKS)
def test_what_is_not_for_this_island_is_refused_and_counted(kind):
    hello = Hello(bytes.fromhex(THREE.id), 1)
    cases = [
        (
            encode(hello._replace(bundle=b"x" * 32)),
            Fault.FOREIGN_BUNDLE,
            "7878787878787878",
        ),
        (encode(hello._replace(stage=2)), Fault.WRONG_STAGE, "got stage 2"),
        (encode(hello._replace(version=9)), Fault.WRONG_VERSION, "version 2, got 9"),
        (encode(frame()), Fault.UNEXPECTED, "Hello"),
        (b"garbage", Fault.GARBAGE, "7 bytes"),
    ]
    later = [
        (encode(hello), Fault.UNEXPECTED, "second Hello"),
        (b"\xff\xff", Fault.GARBAGE, "2 bytes"),
        (encode(frame(bundle=1)), Fault.FOREIGN_BUNDLE, "another bundle"),
        (encode(frame(payload=b"1234")), Fault.BAD_PAYLOAD, "12 bytes, got 4"),
        (encode(frame(payload=np.full(3, np.nan, np.float32).tobytes())), Fault.BAD_PAYLOAD, "NaN"),
    ]

    async def story():
        async with chain(kind) as made:
            connector, counted = made.links[0].connector(), made.islands[0].stats.refused
            for content, fault, text in cases:
                connection = await connector()
                await connection.send(content)
                said = decode_server(await connection.receive())
                assert isinstance(said, Refused) and said.fault is fault and text in said.text
                assert await connection.receive() is None, "and that is the end of it"
                await connection.close()
            connection = await connector()
            await connection.send(encode(hello))
            assert isinstance(decode_server(await connection.receive()), Welcome)
            for content, fault, text in later:
                await connection.send(content)
                said = decode_server(await connection.receive())
                assert isinstance(said, Refused) and said.fault is fault and text in said.text
            await connection.send(encode(frame()))
            assert decode_server(await connection.receive()) == Accepted(5, 1)
            first = decode_server(await connection.receive())
            await connection.send(encode(frame()))  # the same again
            assert decode_server(await connection.receive()) == first and isinstance(first, Answer)
            assert made.islands[0].stats.duplicates == 1
            assert sum(counted.values()) == len(cases) + len(later)
            await made.islands[0].drain(1)
            assert isinstance(decode_server(await connection.receive()), Goodbye)
            await connection.close()

    run(story())


def test_a_message_that_is_too_long_is_refused_before_it_is_read():
    async def story():
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(chain("grpc"))
            connection = await made.links[0].connector()()
            await connection.send(encode(Hello(bytes.fromhex(THREE.id), 1)))
            await connection.receive()
            await connection.send(encode(frame(payload=bytes(5000))))
            assert decode_server(await connection.receive()).fault is Fault.BAD_PAYLOAD
            assert made.islands[0].stats.refused == {Fault.BAD_PAYLOAD: 1}
            await connection.send(encode(frame(payload=bytes(70_000))))
            assert await connection.receive() is None
            await connection.close()
            async with Client(THREE, made.links[0].connector(), backoff=SOON) as client:
                assert isinstance(await client.predict(np.ones(3, np.float32)), Answer), "others are not harmed"

    run(story())


def test_an_audit_sees_what_was_stopped_and_the_source_notices_nothing():
    async def story():
        x = samples(400)
        made = {"shadow_rate": 1.0, "outbox": lambda: Outbox(1000)}
        async with chain("memory", **made) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            check(await asyncio.gather(*[await client.submit(sample) for sample in x]), x)
            while any(island.waiting for island in made.islands):
                await asyncio.sleep(0.01)
            return [island.shadow_audit for island in made.islands], [island.stats for island in made.islands]

    audits, counts = run(story())
    x = samples(400)
    wanted = Pipeline(BUNDLE, engines=ENGINES).predict(x)
    stopped = exit_stages(wanted) == 1
    ends = (x[stopped] + 0.25 + 1 - 2).argmax(1)  # what the end says of what the first gate stopped
    later = (exit_stages(wanted) > 1) & (exit_stages(wanted) < 4)
    ends_later = (x[later] + 0.25 + 1 - 2).argmax(1)
    assert audits[0].here == ShadowTally(counts[0].stopped, stopped.sum(), (ends > 0).sum())
    assert audits[0].later == ShadowTally(later.sum(), later.sum(), (ends_later > 0).sum())
    assert audits[0].passed == (wanted.label > 0).sum()
    assert audits[2].here.answered == counts[2].stopped == (exit_stages(wanted) == 3).sum(), (
        "shadow samples of others are not drawn again"
    )
    positive = (x + 0.25 + 1 - 2).argmax(1) > 0  # to the end without any gate
    assert audits[0].lost_rate().estimate == pytest.approx((positive & stopped).sum() / positive.sum())


class Moody:
    """Here, or elsewhere."""

    def run(self, values):
        if (values > 5).any():
            raise RuntimeError("too warm")
        return ENGINES[3].run(values)


class MoodyElsewhere:
    async def run_sample(self, values):
        await asyncio.sleep(0.01)
        return Moody().run(values[None])


@pytest.mark.parametrize("engine", [Moody(), MoodyElsewhere()])
def test_an_engine_that_fails_costs_its_frames_and_no_more(engine):
    async def story():
        engines = [*ENGINES[:3], engine]
        async with chain("memory", engines) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as client:
            said = [await client.predict(np.full(3, value, np.float32)) for value in (2, 9, 2)]
            assert [type(one) for one in said] == [Answer, Dropped, Answer] and said[1].reason is DropReason.FAILED

    run(story())


def test_elsewhere_many_are_at_work_but_no_more_than_there_is_room_for():
    async def story():
        engine, told = SomeTimeElsewhere(ENGINES[3]), []

        async def on_output(job, values, gate_logit):
            told.append(job.frame.sequence)

        executor = RemoteExecutor(
            engine, Callbacks(on_output, lambda key, reason: told.append((key.sequence, reason))), capacity=5
        )
        running = asyncio.ensure_future(executor.run())
        for i in range(50):
            frame = Frame(0, 0, i, captured_us=0 if i == 7 else now_us(), payload=b"", deadline_ms=60_000)
            await executor.submit(Job(frame, key_of(frame), np.ones(3, np.float32), 0.0))
        while executor._tasks:
            await asyncio.sleep(0.001)
        running.cancel()
        assert engine.most == 5
        assert len(told) == 50 and {*told} == {*range(50)} - {7} | {(7, DropReason.TOO_LATE)}

    run(story())


def test_what_breaks_behind_an_engine_elsewhere_ends_the_island():
    async def story():
        async def on_output(job, values, gate_logit):
            raise StorageError("the disk is gone")

        executor = RemoteExecutor(SomeTimeElsewhere(ENGINES[3]), Callbacks(on_output, lambda key, reason: None))
        running = asyncio.ensure_future(executor.run())
        await asyncio.sleep(0)
        await executor.submit(Job(Frame(0, 0, 1, 0, b""), Key(0, 1), np.ones(3, np.float32), 0.0))
        with pytest.raises(StorageError, match="the disk is gone"):
            await running

    run(story())


def test_a_journal_that_is_full_costs_its_frames_and_no_more(caplog):
    class Full:
        def frames(self):
            return []

        def append(self, frame):
            raise StorageError("the disk is full")

    async def story():
        made = {"outbox": lambda: Outbox(9, journal=Full())}
        async with (
            chain("memory", **made) as islands,
            Client(THREE, islands.links[0].connector(), backoff=SOON) as client,
        ):
            passes = await client.predict(np.ones(3, np.float32))
            stops = await client.predict(np.full(3, -1, np.float32))
            assert passes.reason is DropReason.BUFFER_FULL and isinstance(stops, Answer)
            assert islands.islands[0].waiting == 0

    run(story())
    assert "the disk is full" in caplog.text


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("penstock.runtime.islands.receiver.HELLO_TIMEOUT_S", 0.05)

    async def story():
        async with chain("memory") as made:
            connection = await made.links[0].connector()()
            said = decode_server(await connection.receive())
            assert said.fault is Fault.UNEXPECTED and "Hello within 0.05 s" in said.text
            assert await connection.receive() is None

    run(story())


def test_who_does_not_listen_is_not_listened_to():
    class Deaf:
        """Sends frames without end, and reads nothing."""

        def __init__(self):
            self.sent = 0

        async def send(self, content):
            await asyncio.Event().wait()

        async def receive(self):
            self.sent += 1
            await asyncio.sleep(0)
            stops = np.full(3, -1, np.float32).tobytes()
            return encode(
                Hello(bytes.fromhex(THREE.id), 1) if self.sent == 1 else frame(sequence=self.sent, payload=stops)
            )

        async def close(self):
            pass

    async def story():
        async with chain("memory", window=8) as made:
            deaf = Deaf()
            meeting = asyncio.ensure_future(made.islands[0].serve(deaf))
            await asyncio.sleep(0.3)
            heard = deaf.sent
            await asyncio.sleep(0.2)
            assert heard == deaf.sent < 100, "it is read no further"
            async with Client(THREE, made.links[0].connector(), backoff=SOON) as client:
                assert isinstance(await client.predict(np.ones(3, np.float32)), Answer), "others are"
            meeting.cancel()
            await asyncio.gather(meeting, return_exceptions=True)

    run(story())


def test_islands_that_cannot_be_are_refused():
    with pytest.raises(DeliveryError, match=r"1 to 4.*got 5"):
        Island(BUNDLE, 5, engine=ENGINES[0])
    with pytest.raises(DeliveryError, match="stage 2 of 4"):
        Island(BUNDLE, 2, engine=ENGINES[0])
    with pytest.raises(DeliveryError, match="stage 4 of 4"):
        Island(BUNDLE, 4, engine=ENGINES[0], downstream=Downstream(MemoryLink().connector, Outbox(1)))
