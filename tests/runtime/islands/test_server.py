"""Islands as real processes on free ports of this machine: killed, ended in order, and behind mutual TLS."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import grpc.aio
import numpy as np
import pytest

from helpers.zoo import export_three_stages
from penstock.errors import DeliveryError, LinkError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.links.grpc import grpc_connector
from penstock.runtime.islands.links.tls import TlsConfig
from penstock.runtime.islands.ops.certificates import write_certificates
from penstock.runtime.islands.ops.local_cluster import LocalCluster
from penstock.runtime.islands.protocol import Answer
from penstock.runtime.islands.server import ServerConfig, check_exposure
from penstock.runtime.islands.uplink import Backoff
from penstock.runtime.pipeline import Pipeline

SOON = Backoff(0.01, 0.1)
MAIN = "from penstock.cli import main; main()"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    export_three_stages(folder)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class IslandProcesses:
    """All islands of a bundle, each a process."""

    def __init__(self, bundle: Path, *options):
        self.bundle, self.options = bundle, options
        self.ports = [free_port() for _ in Bundle.read(bundle).manifest.stages]
        self.processes = [self.start(i) for i in range(len(self.ports))]

    def start(self, i) -> subprocess.Popen:
        command = [sys.executable, "-c", MAIN, "island", str(self.bundle), "--stage", str(i + 1)]
        command += ["--listen", f"127.0.0.1:{self.ports[i]}", *self.options]
        command += ["--next", f"127.0.0.1:{self.ports[i + 1]}"] if i + 1 < len(self.ports) else []
        env = os.environ | {"OMP_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert process.stdout.readline() == f"stage {i + 1} listening at 127.0.0.1:{self.ports[i]}\n"
        return process

    def kill(self, i) -> None:
        self.processes[i].kill()
        self.processes[i].communicate()

    def connector(self, tls=None):
        return grpc_connector(f"127.0.0.1:{self.ports[0]}", tls=tls, timeout_s=1)


@contextmanager
def island_processes(*arguments):
    made = IslandProcesses(*arguments)
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.communicate()


def samples(bundle, n):
    shape = Bundle.read(bundle).manifest.stages[0].input.shape
    return np.random.default_rng(0).normal(size=(n, *shape)).astype(np.float32)


def exit_stages(results):
    return results.exit_stage


def check(bundle, x, answers) -> None:
    wanted = Pipeline(Bundle.read(bundle)).predict(x)
    exits = exit_stages(wanted)
    assert set(exits) == {1, 2, 3}, "frames end at all stages"
    for i, answer in enumerate(answers):
        assert isinstance(answer, Answer), answer
        assert (answer.label, answer.exit_stage, answer.stopped) == (wanted.label[i], exits[i], exits[i] < 3)


async def is_heard(connector) -> bool:
    """Whether somebody answers, if only to refuse."""
    try:
        connection = await connector()
        await connection.send(b"")
        said = await connection.receive()
        await connection.close()
    except LinkError:
        return False
    return said is not None


def run(story):
    return asyncio.run(asyncio.wait_for(story, 100))


def test_islands_that_are_killed_lose_nothing(bundle):
    x = samples(bundle, 1500)

    async def story():
        with island_processes(bundle) as made:
            async with Client(Bundle.read(bundle).manifest, made.connector(), backoff=SOON) as client:

                async def trouble():
                    for i in (0, 1, 2):
                        await asyncio.sleep(0.2)
                        made.kill(i)
                        made.processes[i] = await asyncio.to_thread(made.start, i)

                making = asyncio.ensure_future(trouble())
                futures = []
                for sample in x:
                    futures.append(await client.submit(sample))
                    await asyncio.sleep(0.001)
                check(bundle, x, await asyncio.gather(*futures))
                await making
                assert client.uplink.resent > 0

    run(story())


def test_told_to_end_an_island_answers_what_it_has_and_ends(bundle):
    x = samples(bundle, 200)

    async def story():
        with island_processes(bundle) as made:
            async with Client(Bundle.read(bundle).manifest, made.connector(), backoff=SOON) as client:
                futures = [await client.submit(sample) for sample in x]
                await futures[0]
                made.processes[1].send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(made.processes[1].wait, 20) == 0
                made.processes[1].stdout.close()
                made.processes[1] = await asyncio.to_thread(made.start, 1)
                check(bundle, x, await asyncio.gather(*futures))
            for process in made.processes:
                process.send_signal(signal.SIGINT)
            assert [process.wait(20) for process in made.processes] == [0, 0, 0]

    run(story())


def test_with_mutual_tls_only_those_who_are_known_get_in(bundle, tmp_path):
    known, foreign = tmp_path / "known", tmp_path / "foreign"
    write_certificates(known, ["hub.local"])
    write_certificates(known, ["phone.local"])  # later, by the same authority
    write_certificates(foreign, ["hub.local"])
    assert (known / "hub.local.key").stat().st_mode & 0o077 == 0

    def tls(folder, name="hub.local"):
        return TlsConfig(folder / f"{name}.pem", folder / f"{name}.key", folder / "authority.pem")

    x = samples(bundle, 60)
    files = ("certificate", f"{known}/hub.local.pem"), ("key", f"{known}/hub.local.key")
    options = [part for name, path in (*files, ("authority", f"{known}/authority.pem")) for part in (f"--{name}", path)]

    async def story():
        with island_processes(bundle, *options) as made:
            async with Client(Bundle.read(bundle).manifest, made.connector(tls(known, "phone.local"))) as client:
                check(bundle, x, await asyncio.gather(*[await client.submit(sample) for sample in x]))
            assert await is_heard(made.connector(tls(known)))
            assert not await is_heard(made.connector(tls(foreign)))
            assert not await is_heard(made.connector(None))

    run(story())


def test_metrics_and_health_say_what_is_the_case(bundle):
    x = samples(bundle, 120)
    exits = exit_stages(Pipeline(Bundle.read(bundle)).predict(x))

    async def story():
        with LocalCluster(bundle) as cluster:
            assert [seen.metrics["frames"] for seen in cluster.status()] == [0, 0, 0]
            async with Client(Bundle.read(bundle).manifest, grpc_connector(cluster.address)) as client:
                check(bundle, x, await asyncio.gather(*[await client.submit(sample) for sample in x]))
            seen = cluster.status()
            async with grpc.aio.insecure_channel(cluster.address) as channel:
                health = await channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
            return seen, health

    seen, health = run(story())
    assert health == b"\x08\x01", "SERVING"
    assert [one.metrics["frames"] for one in seen] == [120, (exits > 1).sum(), (exits > 2).sum()]
    assert [one.metrics["stopped"] for one in seen] == [(exits == 1).sum(), (exits == 2).sum(), 0]
    assert [one.metrics["answered"] for one in seen] == [one.metrics["frames"] for one in seen]
    assert [one.metrics["forwarded"] for one in seen] == [one.metrics["frames"] for one in seen[1:]] + [0]
    assert [one.metrics["waiting"] for one in seen] == [0, 0, 0] and all(one.alive for one in seen)
    assert all(0 < one.p50_s <= one.p99_s < 5 for one in seen)


def islands_of(bundle) -> int:
    """How many islands of a bundle there are among the processes of this machine."""
    command = ["pgrep", "-f", f"island {bundle} --stage"]
    return len(subprocess.run(command, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("ending", ["--seconds", signal.SIGINT, signal.SIGHUP])
def test_up_shows_a_table_and_leaves_nothing_behind(bundle, tmp_path, ending):
    np.save(tmp_path / "x.npy", samples(bundle, 50))
    command = [sys.executable, "-c", MAIN, "up", str(bundle), "--input", str(tmp_path / "x.npy"), "--rate", "100"]
    command += ["--seconds", "2"] if ending == "--seconds" else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "listening at 127.0.0.1:" in process.stdout.readline()
    assert islands_of(bundle) == 3
    if ending != "--seconds":
        process.send_signal(ending)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    header, *rows, tally = out.rstrip().splitlines()
    assert " ".join(header.split()) == "stage frames in stopped forwarded waiting bytes out dropped p50 p99 next"
    assert [row.split()[0] for row in rows] == ["1", "2", "3"] and all(len(row) <= 100 for row in rows)
    if ending == "--seconds":
        sent, answered, dropped = (int(word) for word in tally.replace(",", "").split() if word.isdigit())
        assert sent == answered > 50 and dropped == 0
    assert islands_of(bundle) == 0


def test_a_cluster_stops_if_an_island_does_not_start(bundle, tmp_path):
    damaged = tmp_path / "bundle"
    shutil.copytree(bundle, damaged)
    (damaged / "stage-1.onnx").write_bytes(b"")
    with pytest.raises(DeliveryError, match=r"stage 3 did not start: .*stage-1.onnx"):  # noqa: SIM117
        with LocalCluster(damaged):
            pass
    assert islands_of(damaged) == 0


def test_without_protection_only_this_machine_gets_in(bundle, tmp_path):
    with pytest.raises(LinkError, match=r"0\.0\.0\.0:7000.*--insecure"):
        check_exposure(ServerConfig(bundle, 1, "0.0.0.0:7000"))
    check_exposure(ServerConfig(bundle, 1, "0.0.0.0:7000", insecure=True))
    ours = TlsConfig(*(tmp_path / name for name in "abc"))
    with pytest.raises(LinkError, match=r"No such file or directory.*penstock certs"):
        check_exposure(ServerConfig(bundle, 1, "0.0.0.0:7000", tls=ours))
    check_exposure(ServerConfig(bundle, 1, "localhost:7000"))
    with pytest.raises(LinkError, match="hub:7002"):
        check_exposure(ServerConfig(bundle, 1, "localhost:7000", downstream="hub:7002"))
    check_exposure(ServerConfig(bundle, 1, "localhost:7000", downstream="hub:7002", insecure=True))


def test_certificates_that_are_none_are_refused_as_such(bundle, tmp_path):
    write_certificates(tmp_path, ["a", "b"])
    (tmp_path / "junk").write_text("junk")
    files = {name: tmp_path / name for name in ("a.pem", "a.key", "b.key", "authority.pem", "junk")}

    def reach(*names):
        check_exposure(ServerConfig(bundle, 1, "0.0.0.0:7000", tls=TlsConfig(*(files[name] for name in names))))

    reach("a.pem", "a.key", "authority.pem")
    for names in (("junk", "a.key", "authority.pem"), ("a.pem", "junk", "authority.pem"), ("a.pem", "b.key", "junk")):
        with pytest.raises(LinkError, match=r"key in PEM: .*penstock certs"):
            reach(*names)
    with pytest.raises(LinkError, match=r"junk is not an authority"):
        reach("a.pem", "a.key", "junk")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--replicas", "0"], "replicas must be at least 1, or a range such as 1-8, got 0"),
        (["--replicas", "3-2"], "got 3-2"),
        (["--replicas", "many"], "replicas must be a number, or a range such as 1-8, got 'many'"),
        (["--batch", "0"], "batch must be finite and at least 1, got 0"),
        (["--wait-ms", "inf"], "wait_ms must be finite and at least 0, got inf"),
        (["--shadow-rate", "2"], "shadow_rate must be between 0 and 1, got 2.0"),
        (["--buffer", "0"], "buffer must be at least 1, got 0"),
        (["--key", "k", "--certificate", "c", "--authority", "a"], "cannot read c"),
        (["--wait-ms", "nan"], "wait_ms must be finite and at least 0, got nan"),
        (["--stage", "1"], "stage 1 of 3"),
        (["--stage", "4"], "1 to 3 for this bundle, got 4"),
        (["--listen", "0.0.0.0:1"], "0.0.0.0:1"),
        ([], "MissingExtraError: ray is not installed: pip install 'penstock[cloud]'"),
    ],
)
def test_what_cannot_be_served_is_said_before_anything_starts(bundle, arguments, text):
    command = [sys.executable, "-c", MAIN, "serve", str(bundle), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and text in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--stage", "4"], "DeliveryError: stage must be 1 to 3 for this bundle, got 4"),
        (["--stage", "3", "--threads", "-1"], "DeliveryError: threads must be at least 0, got -1"),
        (["--stage", "3", "--journal", "j"], "DeliveryError: journal"),
        (["--stage", "1"], "DeliveryError: stage 1 of 3"),
        (["--stage", "3", "--next", "127.0.0.1:1"], "DeliveryError: stage 3 of 3"),
        (["--stage", "3", "--listen", "0.0.0.0:0"], "LinkError: other machines can reach 0.0.0.0:0"),
        (["--stage", "3", "--listen", "127.0.0.1:99999"], "LinkError: invalid address '127.0.0.1:99999'"),
        (["--stage", "3", "--metrics", "0.0.0.0:0"], "LinkError: metrics at 0.0.0.0:0"),
        (["--stage", "2", "--next", "nonsense"], "LinkError: invalid address 'nonsense'"),
        (["--stage", "3", "--key", "k"], "LinkError: mutual TLS"),
        (["--stage", "3", "--key", "k", "--certificate", "c", "--authority", "a"], "cannot read c: No such file"),
    ],
)
def test_what_cannot_be_is_refused(bundle, arguments, text):
    command = [sys.executable, "-c", MAIN, "island", str(bundle), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and text in ran.stderr


def test_who_reads_may_stop_reading(bundle, tmp_path):
    np.save(tmp_path / "x.npy", samples(bundle, 5000))
    command = f'set -o pipefail; "{sys.executable}" -c "{MAIN}" run {bundle} {tmp_path}/x.npy --each | head -2'
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert len(ran.stdout.splitlines()) == 2 and ran.stderr == "" and ran.returncode == 1


def test_names_and_authorities_that_cannot_be_are_refused(tmp_path):
    for name in ("", "authority", "a/b", "..", "größe", "hub local", "x" * 65):
        with pytest.raises(LinkError, match="invalid certificate name"):
            write_certificates(tmp_path, [name])
    (tmp_path / "authority.pem").write_text("mine")
    with pytest.raises(LinkError, match="authority"):
        write_certificates(tmp_path, ["hub"])
    assert (tmp_path / "authority.pem").read_text() == "mine"
