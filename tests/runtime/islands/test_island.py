"""Islands over links say what the chain in one process says, whatever is cut on the way."""

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
from penstock.runtime.islands.island import Downstream, Island
from penstock.runtime.islands.links.grpc import Listener, grpc_connector
from penstock.runtime.islands.ops.shadow_audit import ShadowTally
from penstock.runtime.islands.protocol import (
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
    decode_down,
    decode_up,
    encode,
)
from penstock.runtime.islands.uplink import Backoff, now_us
from penstock.runtime.pipeline import Pipeline

BUNDLE = Bundle(THREE, (b"",) * 4)
SOON = Backoff(0.001, 0.02)


class Memory:
    """Links within this process."""

    def __init__(self):
        self.link = MemoryLink()

    async def start(self, island):
        self.link.there = island.meet

    def connector(self):
        return self.link.connector

    async def cut(self):
        self.link.cut()

    async def stop(self):
        self.link.there = None
        self.link.cut()


class Grpc:
    """Links over real sockets, on free ports of the loopback."""

    port = 0

    async def start(self, island):
        self.island = island
        self.listener = Listener(island.meet, f"127.0.0.1:{self.port}", payload_bytes=island.stage.takes.payload_bytes)
        self.port = self.listener.port
        await self.listener.start()

    def connector(self):
        async def connector():
            return await grpc_connector(f"127.0.0.1:{self.port}", timeout_s=1)()

        return connector

    async def cut(self):
        await self.listener.stop(0)
        await self.start(self.island)

    async def stop(self):
        await self.listener.stop(0)


LINKS = {"memory": Memory, "grpc": Grpc}


class Town:
    """Four islands in a row, and what connects them."""

    def __init__(self, kind, engines=ENGINES, **options):
        self.engines, self.links = engines, [kind() for _ in range(4)]
        self.options = {"window": 8} | options
        self.islands, self.tasks = [None] * 4, [None] * 4

    async def build(self, i):
        downstream = None
        if i < 3:
            downstream = Downstream(
                self.links[i + 1].connector(), self.options.get("outbox", lambda: Outbox(64))(), backoff=SOON
            )
        plain = {name: value for name, value in self.options.items() if name != "outbox"}
        self.islands[i] = Island(BUNDLE, i + 1, downstream=downstream, engine=self.engines[i], **plain)
        self.tasks[i] = asyncio.ensure_future(self.islands[i].run())
        await self.links[i].start(self.islands[i])

    async def kill(self, i):
        """End an island without a word: all that it had in memory is gone."""
        await self.links[i].stop()
        self.tasks[i].cancel()
        await asyncio.gather(self.tasks[i], return_exceptions=True)


@asynccontextmanager
async def town(kind, engines=ENGINES, **options):
    made = Town(LINKS[kind], engines, **options)
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
    for i, answer in enumerate(answers):
        assert isinstance(answer, Answer), answer
        assert answer.label == wanted.label[i]
        assert answer.stopped_by == wanted.stopped_at[i] + 1
        scores = [score for score in wanted.scores[i] if not np.isnan(score)]
        np.testing.assert_allclose(answer.scores, scores, atol=1e-6)
        assert bool(answer.logits) == (wanted.stopped_at[i] < 0)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


class SomeTimeElsewhere:
    """An engine that is asked, and gives answers in any order."""

    def __init__(self, engine):
        self.engine, self.at_once, self.most = engine, 0, 0

    async def ask(self, values):
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
        async with town(kind, engines) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:
            check(await asyncio.gather(*[await source.submit(sample) for sample in x]), x)
            counts = [island.counts for island in made.islands]
        assert counts[0].frames == 300 and all(one.answered == one.frames for one in counts)
        assert all(one.duplicates == 0 and not one.dropped and not one.refused for one in counts)
        assert counts[0].forwarded == counts[1].frames == counts[0].frames - counts[0].stopped
        assert counts[0].forwarded_bytes == counts[1].received_bytes == 12 * counts[0].forwarded

    run(story())


@pytest.mark.parametrize("kind", LINKS)
def test_whatever_is_cut_and_killed_each_frame_is_answered_once(kind):
    async def story():
        x = samples(1200 if kind == "memory" else 600)
        async with town(kind) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:

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
            futures = []
            for sample in x:
                futures.append(await source.submit(sample))
                if len(futures) % 8 == 0:
                    await asyncio.sleep(0.002)
            check(await asyncio.gather(*futures), x)
            await making
            assert source.uplink.resent > 0

    run(story())


def test_while_the_next_island_is_away_samples_are_still_stopped():
    async def story():
        x = samples(60)
        stops = Pipeline(BUNDLE, engines=ENGINES).predict(x).stopped_at == 0
        async with town("memory") as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:
            await made.kill(1)
            futures = [await source.submit(sample) for sample in x[:50]]
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
        async with town("memory", **drop) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:
            await made.kill(1)
            futures = [await source.submit(sample) for sample in x]
            await asyncio.sleep(0.1)
            dropped = [future.result() for future in futures if future.done()]
            assert dropped == [Dropped(source.stream, i + 1, Reason.BUFFER_FULL) for i in range(36)]
            await made.build(1)
            check((await asyncio.gather(*futures))[36:], x[36:])
        wait = {"outbox": lambda: Outbox(4), "window": 4}
        async with town("memory", **wait) as made:
            outbox = Outbox(4)
            async with Client(THREE, made.links[0].connector(), outbox=outbox, backoff=SOON) as source:
                await made.kill(1)
                sending = asyncio.ensure_future(asyncio.gather(*[source.submit(sample) for sample in x]))
                await asyncio.sleep(0.1)
                assert not sending.done() and outbox.full, "the source waits"
                await made.build(1)
                check(await asyncio.gather(*await sending), x)

    run(story())


def test_what_comes_too_late_is_reported():
    async def story():
        x = np.ones((5, 3), np.float32)
        async with (
            town("memory") as made,
            Client(THREE, made.links[0].connector(), deadline_ms=80, backoff=SOON) as source,
        ):
            await made.kill(1)
            futures = [await source.submit(sample) for sample in x]
            said = await asyncio.gather(*futures)
            assert {answer.reason for answer in said} == {Reason.TOO_LATE}
            await made.build(1)
            check([await source.ask(x[0])], x[:1])

    run(story())


def test_a_source_that_ends_reports_what_is_left():
    async def story():
        x = np.ones(3, np.float32)
        async with Client(THREE, MemoryLink().connector, outbox=Outbox(2), backoff=SOON) as source:
            asked = [asyncio.ensure_future(source.ask(x)) for _ in range(4)]
            await asyncio.sleep(0.05)
        assert [answer.reason for answer in await asyncio.gather(*asked)] == [Reason.ENDED] * 4
        assert (await source.ask(x)).reason is Reason.ENDED, "and what comes later, too"

    run(story())


def test_times_that_cannot_be_are_refused():
    for deadline_ms in (-1, 2**32, 0.5):
        with pytest.raises(DeliveryError, match=r"deadline_ms = .* is not possible: whole milliseconds, 0 for none"):
            Client(THREE, MemoryLink().connector, deadline_ms=deadline_ms)

    async def story():
        with pytest.raises(DeliveryError, match=r"captured_us = -1 is not possible"):
            await Client(THREE, MemoryLink().connector).submit(np.ones(3, np.float32), captured_us=-1)

    run(story())


def test_a_frame_whose_link_broke_while_it_waited_is_new_when_it_comes_again():
    """Its sender is not the only one, so that it had to wait for its turn."""

    async def story():
        x = np.full(3, -1, np.float32)
        async with town("memory", window=2) as made:
            island = made.islands[0]
            island._bench._slow = True
            made.tasks[0].cancel()  # nobody works for a while
            await asyncio.gather(made.tasks[0], return_exceptions=True)
            sources = [Client(THREE, made.links[0].connector(), backoff=SOON) for _ in range(3)]
            async with AsyncExitStack() as stack:
                for source in sources:
                    await stack.enter_async_context(source)
                asked = [asyncio.ensure_future(source.ask(x)) for source in sources for _ in range(4)]
                await asyncio.sleep(0.1)
                made.links[0].link.cut()
                await asyncio.sleep(0.1)
                made.tasks[0] = asyncio.ensure_future(island._bench.run())
                answers = await asyncio.gather(*asked)
            assert [answer.stopped_by for answer in answers] == [1] * 12 and len(island._inbox) == 0

    run(story())


def test_what_is_not_the_links_fault_is_raised():
    async def broken():
        raise AttributeError("no such thing")

    async def story():
        async with Client(THREE, broken, backoff=SOON) as source:
            for _ in range(2):
                with pytest.raises(AttributeError, match="no such thing"):
                    await source.ask(np.ones(3, np.float32))

    run(story())


def test_who_is_not_there_is_named_once(caplog):
    async def story():
        asked = []
        async with Client(THREE, grpc_connector("127.0.0.1:1", timeout_s=0.05), backoff=SOON) as source:
            asked.append(await source.submit(np.ones(3, np.float32)))
            await asyncio.sleep(0.4)
        assert (await asked[0]).reason is Reason.ENDED

    run(story())
    assert [record.message for record in caplog.records] == ["nobody answers at 127.0.0.1:1, in the clear; trying on"]


@pytest.mark.parametrize("kind", LINKS)
def test_who_says_goodbye_and_stays_is_left_after_a_while(monkeypatch, kind):
    """However much there is to send meanwhile."""
    monkeypatch.setattr("penstock.runtime.islands.uplink.GOODBYE_S", 0.1)

    async def story():
        link, met = LINKS[kind](), []

        async def lingers(connection):
            met.append(connection)
            await connection.receive()
            await connection.send(encode(Welcome(8)))
            if len(met) == 1:
                await connection.send(encode(Goodbye("soon")))
            while (content := await connection.receive()) is not None:
                asked = decode_up(content)
                if len(met) > 1:
                    await connection.send(encode(Answer(asked.stream, asked.sequence, 0, 1, (0.2,))))

        await link.start(SimpleNamespace(meet=lingers, stage=THREE.stages[0]))
        async with Client(THREE, link.connector(), outbox=Outbox(4, DropOldest()), backoff=SOON) as source:
            futures = []
            for _ in range(60):
                futures.append(await source.submit(np.ones(3, np.float32)))
                await asyncio.sleep(0.01)
            said = await asyncio.gather(*futures)
            assert all(isinstance(one, Answer) for one in said[30:])
        assert len(met) == 2
        await link.stop()

    run(story())


def test_a_source_that_was_not_entered_and_what_is_no_array_are_clear_errors():
    async def story():
        source = Client(THREE, MemoryLink().connector)
        with pytest.raises(DeliveryError, match="a source sends nothing before it was entered: async with Source"):
            await source.ask(np.ones(3, np.float32))
        with pytest.raises(ShapeError, match="an input of type list came"):
            await source.ask([1.0, 2.0, 3.0])

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
                asked = decode_up(content)
                if number == 1:
                    await connection.send(encode(Goodbye("now")))
                await connection.send(encode(Answer(asked.stream, asked.sequence, 0, 1, (0.2,))))
                if number == 1:
                    await connection.close()
                    return

        link.there = leaves
        for _ in range(30):
            async with Client(THREE, link.connector, backoff=SOON) as source:
                asked = [await source.submit(np.ones(3, np.float32)) for _ in range(7)]
                await asyncio.wait_for(asyncio.gather(*asked), 2)

    run(story())


def test_a_frame_that_came_again_over_a_new_link_is_not_forgotten_with_the_old_one():
    """The old link's end is noticed late: the frame has come again by then, and waits for its answer."""

    async def story():
        async with town("memory", AWAY, window=8) as made:
            island = made.islands[3]
            island._bench._room = asyncio.Semaphore(1)
            links, tasks, ends = [], [], []
            for _ in range(2):
                link = MemoryLink()

                async def meet(connection):
                    tasks.append(asyncio.current_task())
                    await island.meet(connection)

                link.there = meet
                ends.append(await link.connector())
                links.append(link)
                await ends[-1].send(encode(Hello(bytes.fromhex(THREE.id), 4)))
                await ends[-1].receive()
            await island._bench._room.acquire()  # nothing is worked on
            await ends[0].send(encode(frame()))
            await asyncio.sleep(0.02)
            await ends[1].send(encode(frame()))  # the same again
            await asyncio.sleep(0.02)
            tasks[0].cancel()
            await asyncio.sleep(0.02)
            island._bench._room.release()
            said = decode_down(await asyncio.wait_for(ends[1].receive(), 2))
            assert isinstance(said, Answer) and (said.stream, said.sequence) == (5, 1)

    run(story())


def test_an_island_that_is_refused_by_the_next_says_so(caplog):
    async def story():
        async with town("memory") as made:
            await made.kill(1)
            made.links[1].link.there = made.islands[2].meet  # stage 3 where stage 2 should be
            while not made.islands[0].refused:
                await asyncio.sleep(0.01)
            assert not made.islands[0].connected
            assert "the next island refuses us: frames for stage 2 came; this is 3." in caplog.text
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
            asked = decode_up(await connection.receive())
            await connection.send(encode(answers.pop()(asked.stream, asked.sequence)))
            await connection.receive()

        link.there = liar
        for lie in ({"label": 3}, {"label": 0, "stopped_by": 4}, {"label": 1}, {"label": 0, "scores": (0.5,) * 4}):
            answers.append(lambda stream, sequence, lie=lie: Answer(stream, sequence, **lie))
            async with Client(THREE, link.connector, backoff=SOON) as source:
                assert await source.ask(np.ones(3, np.float32)) == Dropped(source.stream, 1, Reason.FAILED)

    run(story())
    assert caplog.text.count("an answer came that makes no sense") == 4


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

        link.there = rude
        async with Client(THREE, link.connector, backoff=Backoff(0.01, 5)) as source:
            await source.submit(np.ones(3, np.float32))
            await asyncio.sleep(0.5)

    run(story())
    assert 2 <= len(dials) <= 9


@pytest.mark.parametrize("kind", LINKS)
def test_an_island_that_drains_answers_what_it_has(kind):
    async def story():
        x = samples(100)
        async with town(kind, window=64) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:
            futures = [await source.submit(sample) for sample in x]
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
            "frames for bundle 7878787878787878 came",
        ),
        (encode(hello._replace(stage=2)), Fault.WRONG_STAGE, "frames for stage 2 came; this is 1"),
        (encode(hello._replace(version=9)), Fault.WRONG_VERSION, "protocol 9 came; this island speaks 1"),
        (encode(frame()), Fault.UNEXPECTED, "the first message of a sender is Hello"),
        (b"garbage", Fault.GARBAGE, "7 bytes came that are no message"),
    ]
    later = [
        (encode(hello), Fault.UNEXPECTED, "a second Hello came"),
        (b"\xff\xff", Fault.GARBAGE, "2 bytes came that are no message"),
        (encode(frame(bundle=1)), Fault.FOREIGN_BUNDLE, "a frame of another bundle came"),
        (encode(frame(payload=b"1234")), Fault.WRONG_SIZE, "a payload of 4 bytes came; this stage takes 12"),
        (encode(frame(payload=np.full(3, np.nan, np.float32).tobytes())), Fault.WRONG_SIZE, "NaN or infinity came"),
    ]

    async def story():
        async with town(kind) as made:
            connector, counted = made.links[0].connector(), made.islands[0].counts.refused
            for content, fault, text in cases:
                connection = await connector()
                await connection.send(content)
                said = decode_down(await connection.receive())
                assert isinstance(said, Refused) and said.fault is fault and text in said.text
                assert await connection.receive() is None, "and that is the end of it"
                await connection.close()
            connection = await connector()
            await connection.send(encode(hello))
            assert isinstance(decode_down(await connection.receive()), Welcome)
            for content, fault, text in later:
                await connection.send(content)
                said = decode_down(await connection.receive())
                assert isinstance(said, Refused) and said.fault is fault and text in said.text
            await connection.send(encode(frame()))
            assert decode_down(await connection.receive()) == Accepted(5, 1)
            first = decode_down(await connection.receive())
            await connection.send(encode(frame()))  # the same again
            assert decode_down(await connection.receive()) == first and isinstance(first, Answer)
            assert made.islands[0].counts.duplicates == 1
            assert sum(counted.values()) == len(cases) + len(later)
            await made.islands[0].drain(1)
            assert isinstance(decode_down(await connection.receive()), Goodbye)
            await connection.close()

    run(story())


def test_a_message_that_is_too_long_is_refused_before_it_is_read():
    async def story():
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(town("grpc"))
            connection = await made.links[0].connector()()
            await connection.send(encode(Hello(bytes.fromhex(THREE.id), 1)))
            await connection.receive()
            await connection.send(encode(frame(payload=bytes(5000))))
            assert decode_down(await connection.receive()).fault is Fault.WRONG_SIZE
            assert made.islands[0].counts.refused == {Fault.WRONG_SIZE: 1}
            await connection.send(encode(frame(payload=bytes(70_000))))
            assert await connection.receive() is None
            await connection.close()
            async with Client(THREE, made.links[0].connector(), backoff=SOON) as source:
                assert isinstance(await source.ask(np.ones(3, np.float32)), Answer), "others are not harmed"

    run(story())


def test_an_audit_sees_what_was_stopped_and_the_source_notices_nothing():
    async def story():
        x = samples(400)
        made = {"audit": 1.0, "outbox": lambda: Outbox(1000)}
        async with town("memory", **made) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:
            check(await asyncio.gather(*[await source.submit(sample) for sample in x]), x)
            while any(island.waiting for island in made.islands):
                await asyncio.sleep(0.01)
            return [island.audit for island in made.islands], [island.counts for island in made.islands]

    audits, counts = run(story())
    x = samples(400)
    wanted = Pipeline(BUNDLE, engines=ENGINES).predict(x)
    stopped = wanted.stopped_at == 0
    ends = (x[stopped] + 0.25 + 1 - 2).argmax(1)  # what the end says of what the first gate stopped
    later = wanted.stopped_at > 0
    ends_later = (x[later] + 0.25 + 1 - 2).argmax(1)
    assert audits[0].here == ShadowTally(counts[0].stopped, stopped.sum(), (ends > 0).sum())
    assert audits[0].later == ShadowTally(later.sum(), later.sum(), (ends_later > 0).sum())
    assert audits[0].passed == (wanted.label > 0).sum()
    assert audits[2].here.judged == counts[2].stopped == (wanted.stopped_at == 2).sum(), (
        "what others audit it passes on"
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
    async def ask(self, values):
        await asyncio.sleep(0.01)
        return Moody().run(values[None])


@pytest.mark.parametrize("engine", [Moody(), MoodyElsewhere()])
def test_an_engine_that_fails_costs_its_frames_and_no_more(engine):
    async def story():
        engines = [*ENGINES[:3], engine]
        async with town("memory", engines) as made, Client(THREE, made.links[0].connector(), backoff=SOON) as source:
            said = [await source.ask(np.full(3, value, np.float32)) for value in (2, 9, 2)]
            assert [type(one) for one in said] == [Answer, Dropped, Answer] and said[1].reason is Reason.FAILED

    run(story())


def test_elsewhere_many_are_at_work_but_no_more_than_there_is_room_for():
    async def story():
        engine, told = SomeTimeElsewhere(ENGINES[3]), []

        async def worked(arrived, values, logit):
            told.append(arrived.frame.sequence)

        bench = RemoteExecutor(
            engine, Callbacks(worked, lambda key, reason: told.append((key.sequence, reason))), most=5
        )
        running = asyncio.ensure_future(bench.run())
        for i in range(50):
            frame = Frame(0, 0, i, captured_us=0 if i == 7 else now_us(), payload=b"", deadline_ms=60_000)
            await bench.take(Job(frame, key_of(frame), np.ones(3, np.float32), 0.0))
        while bench._tasks:
            await asyncio.sleep(0.001)
        running.cancel()
        assert engine.most == 5
        assert len(told) == 50 and {*told} == {*range(50)} - {7} | {(7, Reason.TOO_LATE)}

    run(story())


def test_what_breaks_behind_an_engine_elsewhere_ends_the_island():
    async def story():
        async def worked(arrived, values, logit):
            raise StorageError("the disk is gone")

        bench = RemoteExecutor(SomeTimeElsewhere(ENGINES[3]), Callbacks(worked, lambda key, reason: None))
        running = asyncio.ensure_future(bench.run())
        await asyncio.sleep(0)
        await bench.take(Job(Frame(0, 0, 1, 0, b""), Key(0, 1), np.ones(3, np.float32), 0.0))
        with pytest.raises(StorageError, match="the disk is gone"):
            await running

    run(story())


def test_a_journal_that_is_full_costs_its_frames_and_no_more(caplog):
    class Full:
        def kept(self):
            return []

        def keep(self, frame):
            raise StorageError("the disk is full")

    async def story():
        made = {"outbox": lambda: Outbox(9, journal=Full())}
        async with (
            town("memory", **made) as islands,
            Client(THREE, islands.links[0].connector(), backoff=SOON) as source,
        ):
            passes = await source.ask(np.ones(3, np.float32))
            stops = await source.ask(np.full(3, -1, np.float32))
            assert passes.reason is Reason.BUFFER_FULL and isinstance(stops, Answer)
            assert islands.islands[0].waiting == 0

    run(story())
    assert "the disk is full" in caplog.text


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("penstock.runtime.islands.island.GREETING_S", 0.05)

    async def story():
        async with town("memory") as made:
            connection = await made.links[0].connector()()
            said = decode_down(await connection.receive())
            assert said.fault is Fault.UNEXPECTED and "no Hello came within 0.05 s" in said.text
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
        async with town("memory", window=8) as made:
            deaf = Deaf()
            meeting = asyncio.ensure_future(made.islands[0].meet(deaf))
            await asyncio.sleep(0.3)
            heard = deaf.sent
            await asyncio.sleep(0.2)
            assert heard == deaf.sent < 100, "it is read no further"
            async with Client(THREE, made.links[0].connector(), backoff=SOON) as source:
                assert isinstance(await source.ask(np.ones(3, np.float32)), Answer), "others are"
            meeting.cancel()
            await asyncio.gather(meeting, return_exceptions=True)

    run(story())


def test_islands_that_cannot_be_are_refused():
    with pytest.raises(DeliveryError, match="there is no stage 5: this bundle has stages 1 to 4"):
        Island(BUNDLE, 5, engine=ENGINES[0])
    with pytest.raises(DeliveryError, match="stage 2 of 4 must know the next island's address"):
        Island(BUNDLE, 2, engine=ENGINES[0])
    with pytest.raises(DeliveryError, match="stage 4 of 4 is the last and sends nothing on"):
        Island(BUNDLE, 4, engine=ENGINES[0], downstream=Downstream(MemoryLink().connector, Outbox(1)))
