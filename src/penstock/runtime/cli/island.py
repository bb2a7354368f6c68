"""The commands of islands: one of them, or all of a bundle for a try-out."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DataError, LinkError
from penstock.runtime.cli.parsing import missing, parser_of

if TYPE_CHECKING:  # what takes more than numpy is imported by the command that needs it
    from penstock.runtime.engines import RemoteEngine
    from penstock.runtime.islands.links.grpc import TlsConfig
    from penstock.runtime.islands.server import ServerConfig

POLICIES = ("wait", "drop-oldest")


def island(arguments: Sequence[str]) -> None:
    """Be one island: receive frames, run a stage, stop them or send them on, and give answers back."""
    parser = parser_of(island, "penstock island bundle/ --stage 1 --listen 127.0.0.1:7001 --next 127.0.0.1:7002")
    parser.add_argument("bundle", type=Path, help="the folder that penstock export wrote")
    parser.add_argument("--stage", type=int, required=True, help="which stage it runs, counted from 1")
    parser.add_argument("--threads", type=int, default=1, help="that the stage may use (default: 1)")
    _add_links(parser)
    given = parser.parse_args(arguments)
    _check_links()
    asyncio.run(_be(given))


def serve(arguments: Sequence[str]) -> None:
    """Be an island whose stage runs on Ray Serve: in batches, on as many replicas as the load asks for."""
    parser = parser_of(serve, "penstock serve bundle/ --stage 3 --replicas 1-8 --listen 127.0.0.1:7003")
    parser.add_argument("bundle", type=Path, help="the folder that penstock export wrote")
    parser.add_argument("--stage", type=int, help="which stage it runs, counted from 1 (default: the last)")
    parser.add_argument("--replicas", default="1", help="how many; 1-8: as many as the load asks for (default: 1)")
    parser.add_argument("--batch", type=int, default=32, help="samples that a replica runs at once (default: 32)")
    parser.add_argument(
        "--wait-ms", type=float, default=2.0, help="that a replica waits for a batch to fill (default: 2)"
    )
    parser.add_argument("--threads", type=int, default=1, help="that a replica may use (default: 1)")
    parser.add_argument("--delay", type=float, default=10.0, metavar="SECONDS", help=_DELAY)
    parser.add_argument("--cluster", metavar="ADDRESS", help=_CLUSTER)
    _add_links(parser)
    given = parser.parse_args(arguments)
    _check_links()
    from penstock.runtime.bundle.bundle import Bundle
    from penstock.runtime.engines.serving import Replicas, ServeConfig
    from penstock.runtime.islands.island import check_place
    from penstock.runtime.islands.server import check_reach

    serving = ServeConfig(
        Replicas.parse(given.replicas), given.batch, given.wait_ms, given.threads, given.cluster, given.delay
    )
    bundle = Bundle.read(given.bundle)
    given.stage = len(bundle.manifest.stages) if given.stage is None else given.stage
    given.window = serving.window
    check_place(bundle.manifest, given.stage, sends_on=given.next is not None)
    check_reach(_station(given))  # what is wrong is said before anything is started
    try:
        from penstock.runtime.engines.ray_serve import RayServe
    except ModuleNotFoundError as error:
        raise missing(error, "cloud") from error
    front = None if given.listen.endswith(":0") else f"{socket.gethostname()} {given.listen}"
    with RayServe(bundle, given.stage, serving, front=front) as engine:
        asyncio.run(_be(given, engine))


_DELAY = "how long a load must last before the number of replicas follows it (default: 10)"
_CLUSTER = "a Ray cluster that is there; auto: the one of this machine (default: one of its own, here)"


def _add_links(parser: argparse.ArgumentParser) -> None:
    """Add what an island needs to know of those before and behind it."""
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: a free port, this machine"
    )
    parser.add_argument("--next", metavar="HOST:PORT", help="the next island; needed for all stages but the last")
    parser.add_argument("--certificate", type=Path, help="its certificate, for mutual TLS; with --key and --authority")
    parser.add_argument("--key", type=Path, help="the certificate's key")
    parser.add_argument("--authority", type=Path, help="the certificate of who signed those of the other islands")
    parser.add_argument(
        "--insecure", action="store_true", help="let other machines reach it without TLS: in safe networks alone"
    )
    parser.add_argument("--buffer", type=int, default=1024, help="frames that wait for the next island (default: 1024)")
    parser.add_argument(
        "--when-full", choices=POLICIES, default="wait", help="make the sender wait, or drop the oldest (default: wait)"
    )
    parser.add_argument("--journal", type=Path, help="a file that keeps waiting frames over a restart")
    parser.add_argument("--deflate", action="store_true", help="deflate payloads where that is smaller")
    parser.add_argument(
        "--audit",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of what this gate or a later one stops, let through to see what it was, such as 0.001",
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics here; port 0: a free one")


def _check_links() -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is raised, counted and said in our own words
    try:
        import penstock.runtime.islands.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error, "links") from error


def _station(given: argparse.Namespace) -> ServerConfig:
    from penstock.runtime.islands.delivery import DropOldest, Wait
    from penstock.runtime.islands.server import ServerConfig

    return ServerConfig(
        bundle=given.bundle,
        stage=given.stage,
        listen=given.listen,
        downstream=given.next,
        tls=_identity(given),
        insecure=given.insecure,
        buffer=given.buffer,
        when_full=DropOldest() if given.when_full == "drop-oldest" else Wait(),
        journal=given.journal,
        deflate=given.deflate,
        window=getattr(given, "window", ServerConfig.window),
        threads=given.threads,
        audit=given.audit,
        metrics=given.metrics,
    )


async def _be(given: argparse.Namespace, engine: RemoteEngine | None = None) -> None:
    from penstock.runtime.islands.server import run_server

    host, is_file = given.listen.rpartition(":")[0], given.listen.startswith("unix:")

    def ready(port: int, metrics: int | None) -> None:
        print(f"stage {given.stage} listens at {given.listen if is_file else f'{host}:{port}'}", flush=True)
        if metrics is not None:
            print(f"metrics at http://{given.metrics.rpartition(':')[0]}:{metrics}/metrics", flush=True)

    await run_server(_station(given), ready, engine=engine)


def up(arguments: Sequence[str]) -> None:
    """Start all islands of a bundle on this machine for a try-out, watch them, and end them all."""
    parser = parser_of(up, "penstock up bundle/ --input samples.npy --rate 50")
    parser.add_argument("bundle", type=Path, help="the folder that penstock export wrote")
    parser.add_argument(
        "--input", type=Path, help="samples as a .npy file, sent over and over; default: send them yourself"
    )
    parser.add_argument("--rate", type=float, default=50.0, help="samples a second (default: 50)")
    parser.add_argument("--seconds", type=float, help="end after so long; default: when interrupted")
    given = parser.parse_args(arguments)
    try:
        from penstock.runtime.cli.live import watch_cluster
    except ModuleNotFoundError as error:
        raise missing(error, "links") from error
    if given.seconds is not None and not given.seconds > 0:
        raise DataError(f"--seconds {given.seconds:g} is not possible: it is more than 0.")
    if not given.rate > 0:
        raise DataError(f"--rate {given.rate:g} is not possible: it is more than 0 samples a second.")
    asyncio.run(watch_cluster(given.bundle, given.input, given.rate, given.seconds))


def certs(arguments: Sequence[str]) -> None:
    """Make certificates for a try-out: an authority of your own, and one for each island that it signs."""
    parser = parser_of(certs, "penstock certs certificates/ hub.local 192.168.1.7")
    parser.add_argument("folder", type=Path, help="where they go; an authority that is there signs the new ones too")
    parser.add_argument("names", nargs="+", help="the islands, by the host that others dial; what one has is replaced")
    given = parser.parse_args(arguments)
    try:
        from penstock.runtime.islands.ops.certificates import write_certificates
    except ModuleNotFoundError as error:
        raise missing(error, "links") from error
    before = set(given.folder.glob("*"))
    for path in write_certificates(given.folder, given.names):
        print(f"{'Replaced' if path in before else 'Written'}: {path}")


def _identity(given: argparse.Namespace) -> TlsConfig | None:
    from penstock.runtime.islands.links.grpc import TlsConfig

    files = (given.certificate, given.key, given.authority)
    if not any(files):
        return None
    if not all(files):
        raise LinkError(
            "mutual TLS takes three files: --certificate, --key and --authority. Give all of them, or none."
        )
    return TlsConfig(*files)
