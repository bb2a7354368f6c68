"""Executors: frames that fail, and remote engines with many frames in flight."""

import asyncio

import numpy as np
import pytest

from helpers.bundles import ENGINES, THREE
from helpers.islands import SOON, SlowRemoteEngine, chain, run
from penstock.errors import StorageError
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import Key, key_of
from penstock.runtime.islands.executor import Callbacks, Job, RemoteExecutor
from penstock.runtime.islands.protocol import (
    Answer,
    Dropped,
    DropReason,
    Frame,
    now_us,
)


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
        engine, told = SlowRemoteEngine(ENGINES[3]), []

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

        executor = RemoteExecutor(SlowRemoteEngine(ENGINES[3]), Callbacks(on_output, lambda key, reason: None))
        running = asyncio.ensure_future(executor.run())
        await asyncio.sleep(0)
        await executor.submit(Job(Frame(0, 0, 1, 0, b""), Key(0, 1), np.ones(3, np.float32), 0.0))
        with pytest.raises(StorageError, match="the disk is gone"):
            await running

    run(story())
