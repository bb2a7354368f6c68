"""The command `penstock serve`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import require
from penstock.runtime.cli.island import add_server_options, require_links, run_island, server_config
from penstock.runtime.cli.parsing import parser_of


def penstock_serve(arguments: Sequence[str]) -> None:
    """Serve one stage over gRPC, and run it on Ray Serve: in batches, on replicas that scale with the load."""
    parser = parser_of(penstock_serve, "penstock serve bundle/ --stage 3 --replicas 1-8 --listen 127.0.0.1:7003")
    parser.add_argument("bundle", type=Path, help="bundle folder, from penstock export")
    parser.add_argument("--stage", type=int, help="number of the stage, counted from 1 (default: the last)")
    ray = parser.add_argument_group("Ray Serve")
    ray.add_argument(
        "--replicas", default="1", metavar="N|MIN-MAX", help="a number, or a range to scale in (default: 1)"
    )
    ray.add_argument("--batch", type=int, default=32, help="largest batch of a replica (default: 32)")
    ray.add_argument("--wait-ms", type=float, default=2.0, help="how long to wait for a full batch (default: 2)")
    ray.add_argument("--threads", type=int, default=1, help="threads per replica (default: 1)")
    ray.add_argument(
        "--delay",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long a load lasts before scaling (default: 10)",
    )
    ray.add_argument(
        "--cluster", metavar="ADDRESS", help="an existing Ray cluster, or auto for this machine's (default: start one)"
    )
    add_server_options(parser)
    args = parser.parse_args(arguments)
    require_links()
    from penstock.runtime.bundle.bundle import Bundle
    from penstock.runtime.engines.serve_config import Replicas, ServeConfig
    from penstock.runtime.islands.island import check_stage
    from penstock.runtime.islands.server import check_exposure

    config = ServeConfig(
        Replicas.parse(args.replicas), args.batch, args.wait_ms, args.threads, args.cluster, args.delay
    )
    bundle = Bundle.read(args.bundle)
    args.stage = len(bundle.manifest.stages) if args.stage is None else args.stage
    args.window = config.window
    check_stage(bundle.manifest, args.stage, has_next=args.downstream is not None)
    check_exposure(server_config(args))  # before anything is started
    require("penstock.runtime.engines.ray_serve", extra="cloud")
    from penstock.runtime.engines.ray_serve import RayServe

    front = None if args.listen.endswith(":0") else f"{socket.gethostname()} {args.listen}"
    with RayServe(bundle, args.stage, config, front=front) as engine:
        asyncio.run(run_island(args, engine))
