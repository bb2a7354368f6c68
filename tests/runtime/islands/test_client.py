"""The client: what is left at its end, and errors that are not of the link."""

import asyncio

import numpy as np
import pytest

from helpers.bundles import THREE
from helpers.islands import SOON, run
from helpers.memory_link import MemoryLink
from penstock.errors import DeliveryError, ShapeError
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import Outbox
from penstock.runtime.islands.protocol import (
    DropReason,
)


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


def test_what_is_not_the_links_fault_is_raised():
    async def broken():
        raise AttributeError("no such thing")

    async def story():
        async with Client(THREE, broken, backoff=SOON) as client:
            for _ in range(2):
                with pytest.raises(AttributeError, match="no such thing"):
                    await client.predict(np.ones(3, np.float32))

    run(story())


def test_a_source_that_was_not_entered_and_what_is_no_array_are_clear_errors():
    async def story():
        client = Client(THREE, MemoryLink().connector)
        with pytest.raises(DeliveryError, match="async with Client"):
            await client.predict(np.ones(3, np.float32))
        with pytest.raises(ShapeError, match="list"):
            await client.predict([1.0, 2.0, 3.0])

    run(story())
