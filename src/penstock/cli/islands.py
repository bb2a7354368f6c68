"""The commands of islands: one of them, or all of a bundle for a try-out."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.parsing import missing, parser_of
from penstock.errors import DataError, LinkError

POLICIES = ("wait", "drop-oldest")


def island(arguments: Sequence[str]) -> None:
    """Be one island: receive frames, run a stage, stop them or send them on, and give answers back."""
    parser = parser_of(island, "penstock island bundle/ --stage 1 --listen 127.0.0.1:7001 --next 127.0.0.1:7002")
    parser.add_argument("bundle", type=Path, help="the folder that penstock export wrote")
    parser.add_argument("--stage", type=int, required=True, help="which stage it runs, counted from 1")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: a free port, this machine"
    )
    parser.add_argument("--next", metavar="HOST:PORT", help="the next island; needed for all stages but the last")
    parser.add_argument("--certificate", type=Path, help="its certificate, for mutual TLS; with --key and --authority")
    parser.add_argument("--key", type=Path, help="the certificate's key")
    parser.add_argument("--authority", type=Path, help="the certificate of who signed those of the other islands")
    parser.add_argument(
        "--in-the-clear", action="store_true", help="let other machines reach it without TLS: in safe networks alone"
    )
    parser.add_argument("--buffer", type=int, default=1024, help="frames that wait for the next island (default: 1024)")
    parser.add_argument(
        "--when-full", choices=POLICIES, default="wait", help="make the sender wait, or drop the oldest (default: wait)"
    )
    parser.add_argument("--journal", type=Path, help="a file that keeps waiting frames over a restart")
    parser.add_argument("--deflate", action="store_true", help="deflate payloads where that is smaller")
    parser.add_argument("--threads", type=int, default=1, help="that the stage may use (default: 1)")
    parser.add_argument(
        "--audit",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of what the gate stops, let through to see what it was",
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics here; port 0: a free one")
    given = parser.parse_args(arguments)
    try:
        import penstock.station  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error, "links") from error
    asyncio.run(_be(given))


async def _be(given: argparse.Namespace) -> None:
    from penstock.delivery import DropOldest, Wait
    from penstock.station import Station, run_station

    station = Station(
        bundle=given.bundle,
        stage=given.stage,
        listen=given.listen,
        onward=given.next,
        identity=_identity(given),
        in_the_clear=given.in_the_clear,
        buffer=given.buffer,
        when_full=DropOldest() if given.when_full == "drop-oldest" else Wait(),
        journal=given.journal,
        deflate=given.deflate,
        threads=given.threads,
        audit=given.audit,
        metrics=given.metrics,
    )
    host = given.listen.rpartition(":")[0]

    def ready(port: int, metrics: int | None) -> None:
        print(f"stage {given.stage} listens at {host}:{port}", flush=True)
        if metrics is not None:
            print(f"metrics at http://{given.metrics.rpartition(':')[0]}:{metrics}/metrics", flush=True)

    await run_station(station, ready)


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
        from penstock.cli.live import watch_fleet
    except ModuleNotFoundError as error:
        raise missing(error, "links") from error
    if not given.rate > 0:
        raise DataError(f"--rate {given.rate:g} is not possible: it is more than 0 samples a second.")
    asyncio.run(watch_fleet(given.bundle, given.input, given.rate, given.seconds))


def certs(arguments: Sequence[str]) -> None:
    """Make certificates for a try-out: an authority of your own, and one for each island that it signs."""
    parser = parser_of(certs, "penstock certs certificates/ hub.local 192.168.1.7")
    parser.add_argument("folder", type=Path, help="where they go; an authority that is there signs the new ones too")
    parser.add_argument("names", nargs="+", help="the islands, by the host that others dial")
    given = parser.parse_args(arguments)
    try:
        from penstock.certificates import write_certificates
    except ModuleNotFoundError as error:
        raise missing(error, "links") from error
    for path in write_certificates(given.folder, given.names):
        print(f"Written: {path}")


def _identity(given: argparse.Namespace):  # type: ignore[no-untyped-def]
    from penstock.links.grpc import Identity

    files = (given.certificate, given.key, given.authority)
    if not any(files):
        return None
    if not all(files):
        raise LinkError(
            "mutual TLS takes three files: --certificate, --key and --authority. Give all of them, or none."
        )
    return Identity(*files)
