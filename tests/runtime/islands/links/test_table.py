"""The table of links: a second scheme is one more line, and its addresses work wherever an address is given."""

import asyncio
import os
import signal
import sys
from types import ModuleType

import pytest

from helpers.bundles import ENGINES
from helpers.islands import BUNDLE, SOON, check, run, samples
from helpers.memory_link import MemoryLink
from penstock.errors import LinkError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.islands import server as islands_server
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import Outbox
from penstock.runtime.islands.island import Downstream, Island
from penstock.runtime.islands.links import table
from penstock.runtime.islands.links.link import Link
from penstock.runtime.islands.links.table import connector_for, link_for
from penstock.runtime.islands.server import ServerConfig, check_exposure, run_server


class MemoryServer:
    """The server side of the memory link at a name."""

    places: dict[str, MemoryLink] = {}  # noqa: RUF012 - all servers share the names

    def __init__(self, handler, address, *, payload_bytes, tls=None, is_healthy=lambda: True):
        self.handler, self.name, self.address = handler, address, f"memory://{address}"

    async def start(self):
        self.places[self.name] = MemoryLink(self.handler)

    async def stop(self, grace_s=0.0):
        self.places.pop(self.name).cut()


def check_name(address):
    if not address.isalpha():
        raise LinkError(f"invalid name {address!r}: expected letters.")


def memory_connector(address, *, tls=None):
    async def connect():
        if address not in MemoryServer.places:
            raise LinkError(f"nothing listens at {address}.")
        return await MemoryServer.places[address].connector()

    return connect


@pytest.fixture(autouse=True)
def memory_scheme(monkeypatch):
    module = ModuleType("memory_scheme")
    module.LINK = Link(memory_connector, MemoryServer, check_name, lambda address: address != "exposed")
    monkeypatch.setitem(sys.modules, "memory_scheme", module)
    monkeypatch.setitem(table.LINKS, "memory", ("memory_scheme", "links"))
    monkeypatch.setattr(MemoryServer, "places", {})


def test_an_address_of_a_second_scheme_is_that_links():
    link, rest = link_for("memory://hub")
    assert (link.server, rest) == (MemoryServer, "hub")
    assert link_for("127.0.0.1:1")[0] is not link, "without a scheme it is gRPC as before"
    with pytest.raises(LinkError, match=r"name 'hub:7001'"):
        link_for("memory://hub:7001")
    with pytest.raises(LinkError, match=r"memry://.*use memory://"):
        connector_for("memry://hub")


def test_a_second_scheme_decides_what_is_exposed(tmp_path):
    check_exposure(ServerConfig(tmp_path, 1, "memory://hub", downstream="memory://phone"))
    with pytest.raises(LinkError, match="memory://exposed"):
        check_exposure(ServerConfig(tmp_path, 1, "memory://exposed"))
    with pytest.raises(LinkError, match="memory://exposed"):
        check_exposure(ServerConfig(tmp_path, 1, "memory://hub", downstream="memory://exposed"))


def test_islands_at_addresses_of_a_second_scheme_answer_as_the_pipeline_does():
    names = ("watch", "hub", "phone", "cloud")

    async def story():
        x, tasks, servers = samples(100), [], []
        for i in reversed(range(4)):
            downstream = None
            if i < 3:
                downstream = Downstream(connector_for(f"memory://{names[i + 1]}"), Outbox(64), backoff=SOON)
            island = Island(BUNDLE, i + 1, downstream=downstream, engine=ENGINES[i])
            link, rest = link_for(f"memory://{names[i]}")
            servers.append(link.server(island.serve, rest, payload_bytes=island.stage.input.payload_bytes))
            await servers[-1].start()
            tasks.append(asyncio.ensure_future(island.run()))
        async with Client(BUNDLE.manifest, connector_for("memory://watch"), backoff=SOON) as client:
            check(await asyncio.gather(*[await client.submit(sample) for sample in x]), x)
        for task, server in zip(tasks, servers, strict=True):
            task.cancel()
            await server.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(story())


def test_an_island_process_listens_at_an_address_of_a_second_scheme(tmp_path, monkeypatch):
    """`run_server` binds, serves a client and drains, and knows no scheme by name."""
    monkeypatch.setattr(Bundle, "read", lambda folder: BUNDLE)
    make_island = islands_server.Island
    monkeypatch.setattr(
        islands_server, "Island", lambda *args, **options: make_island(*args, **(options | {"engine": ENGINES[3]}))
    )
    ready = []

    async def story():
        config = ServerConfig(tmp_path, 4, "memory://cloud")
        running = asyncio.ensure_future(run_server(config, lambda *where: ready.append(where)))
        while not ready:
            await asyncio.sleep(0.01)
        connection = await connector_for(ready[0][0])()
        await connection.close()
        os.kill(os.getpid(), signal.SIGTERM)
        await running

    run(story())
    assert ready == [("memory://cloud", None)] and not MemoryServer.places
