"""A stage on Ray Serve answers as it does in one process, while replicas and the front are killed.

They run in an environment of their own, without torch: `make test-cloud`.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray", reason="Ray lives in an environment of its own: make test-cloud")

from penstock.errors import DeliveryError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines import RemoteEngine
from penstock.runtime.engines.onnxruntime import OnnxRuntime
from penstock.runtime.engines.ray_serve import RayServe
from penstock.runtime.engines.serve_config import Replicas, ServeConfig
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.links.grpc import grpc_connector
from penstock.runtime.islands.protocol import Answer
from penstock.runtime.islands.uplink import Backoff
from penstock.runtime.pipeline import Pipeline

SOON = Backoff(0.01, 0.1)
MAIN = "from penstock.cli import main; main()"
FOLDER = Path(os.environ.get("PENSTOCK_BUNDLE", "runs/cloud/bundle"))

pytestmark = [
    pytest.mark.skipif(not FOLDER.exists(), reason=f"there is no bundle in {FOLDER}: make test-cloud exports one"),
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def bundle():
    return Bundle.read(FOLDER)


def samples(bundle, stage, n):
    takes = bundle.manifest.stages[stage - 1].input
    return np.random.default_rng(0).normal(size=(n, *takes.shape)).astype(takes.dtype)


def replicas_of(served) -> list[int]:
    """The processes of a deployment's replicas."""
    found = subprocess.run(["pgrep", "-f", f"ServeReplica:{served}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def test_nothing_here_needs_torch():
    assert "torch" not in sys.modules


def test_answers_are_those_of_the_stage_in_one_process_though_a_replica_is_killed(bundle):
    x = samples(bundle, 3, 200)
    wanted = OnnxRuntime(bundle.graphs[2]).run(x).values

    async def ask(engine, sample):
        return (await engine.run_sample(sample)).values[0]

    async def story(engine):
        given = await asyncio.gather(*[ask(engine, sample) for sample in x])
        np.testing.assert_allclose(given, wanted, atol=1e-5)
        with pytest.raises(DeliveryError, match="replica failed"):
            await engine.run_sample(x[0][:1])
        spoilt = await asyncio.gather(
            *[engine.run_sample(one) for one in (x[0], x[0][:1], x[1])], return_exceptions=True
        )
        assert [type(one).__name__ for one in spoilt] == ["Output", "DeliveryError", "Output"]
        asked = [asyncio.ensure_future(ask(engine, sample)) for sample in x]
        await asyncio.sleep(0.05)
        killed = replicas_of(engine.name)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        np.testing.assert_allclose(await asyncio.gather(*asked), wanted, atol=1e-5)
        assert killed and not set(killed) & set(replicas_of(engine.name)), "the answers are those of others"

    with RayServe(bundle, 3, ServeConfig(Replicas(1, 1))) as engine:
        assert isinstance(engine, RemoteEngine) and engine.replicas == 1
        asyncio.run(story(engine))
    assert not ray.is_initialized() and not replicas_of(engine.name)


def test_replicas_follow_the_load(bundle):
    x = samples(bundle, 3, 1)[0]

    async def load(engine):
        """Keep many samples on their way until there are two replicas."""
        ended = asyncio.Event()

        async def one():
            while not ended.is_set():
                await engine.run_sample(x)

        askers = [asyncio.ensure_future(one()) for _ in range(64)]
        began = time.monotonic()
        while engine.replicas < 2 and time.monotonic() - began < 60:
            await asyncio.sleep(0.5)
        ended.set()
        await asyncio.gather(*askers)

    with RayServe(bundle, 3, ServeConfig(Replicas(1, 2), batch=4, delay_s=0.5)) as engine:
        assert engine.replicas == 1
        asyncio.run(load(engine))
        assert engine.replicas == 2


def test_more_than_this_machine_has_is_refused(bundle):
    with pytest.raises(DeliveryError, match=r"999 replicas of 2 threads.*1998 processors"):
        RayServe(bundle, 3, ServeConfig(Replicas(999, 999), threads=2)).__enter__()
    assert not ray.is_initialized()


def test_a_cluster_that_does_not_start_is_started_again(bundle, monkeypatch, caplog):
    really, tries = ray.init, []

    def init(*args, **options):
        tries.append(args)
        if len(tries) != 3:
            raise Exception("The current node timed out during startup.")
        return really(*args, **options)

    monkeypatch.setattr(ray, "init", init)
    with RayServe(bundle, 3) as engine:
        assert engine.replicas == 1
    assert caplog.text.count("trying again: The current node timed out") == 2

    with pytest.raises(DeliveryError, match="3 attempts: The current"):
        RayServe(bundle, 3).__enter__()
    assert not ray.is_initialized()


def test_each_front_has_a_deployment_of_its_own_and_finds_it_again(bundle):
    names = [RayServe(bundle, 3, front=front).name for front in ("a:7003", "b:7003", "a:7003", None, None)]
    assert names[0] == names[2] and len(set(names)) == 4


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "auto"])
def test_a_cluster_that_is_not_there_is_a_clear_error(bundle, address):
    began = time.monotonic()
    with pytest.raises(DeliveryError, match=rf"cluster at '{address}'|cluster at {address}: Could"):
        RayServe(bundle, 3, ServeConfig(cluster=address)).__enter__()
    assert not ray.is_initialized() and time.monotonic() - began < 30


@contextmanager
def process(*arguments):
    """A command of penstock that runs until the block ends, and the address it listens at."""
    env = os.environ | {"GRPC_VERBOSITY": "NONE"}
    made = subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        found = re.search(r"listening at (\S+)", made.stdout.readline())
        assert found, "it did not start"
        yield made, found[1]
    finally:
        made.terminate()
        try:
            made.wait(40)
        except subprocess.TimeoutExpired:
            made.kill()
        made.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_islands_whose_last_stage_is_served_are_the_chain_though_all_is_killed(bundle):
    """Two islands and a front are processes; a replica is killed, and then the front, which is started again."""
    x = samples(bundle, 1, 600)
    wanted = Pipeline(bundle).predict(x)
    exits = wanted.exit_stage
    assert set(exits) == {1, 2, 3}, "frames end at all stages"
    cloud = f"127.0.0.1:{free_port()}"
    serving = ("serve", FOLDER, "--stage", 3, "--replicas", 2, "--listen", cloud)

    def trouble(fronts, front):
        time.sleep(0.5)
        os.kill(replicas_of(f"penstock-{bundle.manifest.id[:16]}-3")[0], signal.SIGKILL)
        time.sleep(0.5)
        front.kill()
        fronts.enter_context(process(*serving))

    async def story(first, fronts, front):
        async with Client(bundle.manifest, grpc_connector(first, timeout_s=1), backoff=SOON) as client:
            making = asyncio.ensure_future(asyncio.to_thread(trouble, fronts, front))
            futures = []
            for sample in x:
                futures.append(await client.submit(sample))
                await asyncio.sleep(0.002)
            answers = await asyncio.wait_for(asyncio.gather(*futures), 150)
            await making
        for i, answer in enumerate(answers):
            assert isinstance(answer, Answer), answer
            assert (answer.label, answer.exit_stage, answer.stopped) == (wanted.label[i], exits[i], exits[i] < 3)

    with ExitStack() as fronts:
        front, _ = fronts.enter_context(process(*serving))
        with (
            process("island", FOLDER, "--stage", 2, "--next", cloud) as (_, second),
            process("island", FOLDER, "--stage", 1, "--next", second) as (_, first),
        ):
            asyncio.run(story(first, fronts, front))
