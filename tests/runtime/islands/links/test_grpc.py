"""The gRPC link: limits of messages."""

from contextlib import AsyncExitStack

import numpy as np

from helpers.bundles import THREE
from helpers.islands import SOON, chain, frame, run
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.protocol import (
    Answer,
    Fault,
    Hello,
    decode_server,
    encode,
)


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
