"""The uplink: full buffers, deadlines, reconnects, and answers that do not fit."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.bundles import THREE
from helpers.islands import LINKS, SOON, chain, check, run
from helpers.memory_link import MemoryLink
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import DropOldest, Outbox
from penstock.runtime.islands.links.grpc import grpc_connector
from penstock.runtime.islands.protocol import (
    Answer,
    Dropped,
    DropReason,
    Goodbye,
    Welcome,
    decode_client,
    encode,
)
from penstock.runtime.islands.uplink import Backoff


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
