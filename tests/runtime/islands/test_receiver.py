"""The receiver: duplicates over new links, refused messages, clients that do not read."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from helpers.bundles import THREE
from helpers.islands import AWAY, LINKS, SOON, chain, frame, run
from helpers.memory_link import MemoryLink
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.protocol import (
    Accepted,
    Answer,
    Fault,
    Goodbye,
    Hello,
    Refused,
    Welcome,
    decode_server,
    encode,
)


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
