"""Islands over links answer as the pipeline in one process does, whatever breaks on the way."""

import asyncio

import numpy as np
import pytest

from helpers.bundles import ENGINES, THREE
from helpers.islands import AWAY, BUNDLE, LINKS, SOON, chain, check, exit_stages, run, samples
from helpers.memory_link import MemoryLink
from penstock.errors import DeliveryError, StorageError
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import Outbox
from penstock.runtime.islands.island import Downstream, Island
from penstock.runtime.islands.ops.shadow_audit import ShadowTally
from penstock.runtime.islands.protocol import (
    Answer,
    DropReason,
)
from penstock.runtime.pipeline import Pipeline


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
            assert not len(client.uplink._outbox) and not client._pending

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


def test_islands_that_cannot_be_are_refused():
    with pytest.raises(DeliveryError, match=r"1 to 4.*got 5"):
        Island(BUNDLE, 5, engine=ENGINES[0])
    with pytest.raises(DeliveryError, match="stage 2 of 4"):
        Island(BUNDLE, 2, engine=ENGINES[0])
    with pytest.raises(DeliveryError, match="stage 4 of 4"):
        Island(BUNDLE, 4, engine=ENGINES[0], downstream=Downstream(MemoryLink().connector, Outbox(1)))
