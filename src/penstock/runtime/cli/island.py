"""The command `penstock island`, and the options that it shares with `penstock serve`."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import LinkError, require
from penstock.runtime.cli.parsing import parser_of

if TYPE_CHECKING:  # imported by the command, so that others start quickly
    from penstock.runtime.engines import RemoteEngine
    from penstock.runtime.islands.links.tls import TlsConfig
    from penstock.runtime.islands.server import ServerConfig


def penstock_island(arguments: Sequence[str]) -> None:
    """Serve one stage over gRPC: run it on incoming frames, answer them or forward them to the next island."""
    parser = parser_of(
        penstock_island, "penstock island bundle/ --stage 1 --listen 127.0.0.1:7001 --next 127.0.0.1:7002"
    )
    parser.add_argument("bundle", type=Path, help="bundle folder, from penstock export")
    parser.add_argument("--stage", type=int, required=True, help="number of the stage, counted from 1")
    parser.add_argument("--threads", type=int, default=1, help="threads of the stage; 0 for all cores (default: 1)")
    add_server_options(parser)
    args = parser.parse_args(arguments)
    require_links()
    asyncio.run(run_island(args))


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an island as a server."""
    network = parser.add_argument_group("network")
    network.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="listen here (default: a free port of 127.0.0.1)"
    )
    network.add_argument(
        "--next", dest="downstream", metavar="HOST:PORT", help="the next island; required for all stages but the last"
    )
    network.add_argument("--deflate", action="store_true", help="deflate payloads if that makes them smaller")

    tls = parser.add_argument_group("TLS", "Mutual TLS needs all three files; penstock certs creates them.")
    tls.add_argument("--certificate", type=Path, metavar="FILE", help="certificate of this island")
    tls.add_argument("--key", type=Path, metavar="FILE", help="its private key")
    tls.add_argument("--authority", type=Path, metavar="FILE", help="certificate of the authority that signs islands")
    tls.add_argument(
        "--insecure", action="store_true", help="allow unencrypted traffic with other machines; trusted networks only"
    )

    buffering = parser.add_argument_group("buffering")
    buffering.add_argument(
        "--buffer", type=int, default=1024, metavar="FRAMES", help="frames to keep for the next island (default: 1024)"
    )
    buffering.add_argument(
        "--when-full",
        choices=("wait", "drop-oldest"),
        default="wait",
        help="make clients wait, or drop the oldest (default: wait)",
    )
    buffering.add_argument("--journal", type=Path, metavar="FILE", help="keep unanswered frames over a restart")

    observability = parser.add_argument_group("observability")
    observability.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics; port 0 for a free one")
    observability.add_argument(
        "--shadow-rate",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of stopped frames to forward as shadow samples, such as 0.001, to estimate what the gate loses",
    )


def require_links() -> None:
    """Check that what islands need is installed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are raised, counted and logged by penstock itself
    require("penstock.runtime.islands.server", extra="links")


def server_config(args: argparse.Namespace) -> ServerConfig:
    """Return the settings that the options give, which have the names of its fields."""
    from penstock.runtime.islands.delivery import DropOldest, Wait
    from penstock.runtime.islands.server import ServerConfig

    when_full = DropOldest() if args.when_full == "drop-oldest" else Wait()
    given = {**vars(args), "tls": _tls_config(args), "when_full": when_full}
    return ServerConfig(**{field.name: given[field.name] for field in fields(ServerConfig) if field.name in given})


def _tls_config(args: argparse.Namespace) -> TlsConfig | None:
    from penstock.runtime.islands.links.tls import TlsConfig

    files = (args.certificate, args.key, args.authority)
    if not any(files):
        return None
    if not all(files):
        raise LinkError("mutual TLS needs --certificate, --key and --authority: give all three, or none.")
    return TlsConfig(*files)


async def run_island(args: argparse.Namespace, engine: RemoteEngine | None = None) -> None:
    """Run the island, and print where it listens."""
    from penstock.runtime.islands.server import run_server

    def on_ready(address: str, metrics_port: int | None) -> None:
        print(f"stage {args.stage} listening at {address}", flush=True)
        if metrics_port is not None:
            print(f"metrics at http://{args.metrics.rpartition(':')[0]}:{metrics_port}/metrics", flush=True)

    await run_server(server_config(args), on_ready, engine=engine)
