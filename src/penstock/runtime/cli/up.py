"""The command `penstock up`: run all islands of a bundle on this machine, and show a live table."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DataError
from penstock.runtime.cli.island import require_links
from penstock.runtime.cli.parsing import parser_of, samples_of

if TYPE_CHECKING:  # imported by the command, so that others start quickly
    import numpy as np

    from penstock.runtime.bundle.manifest import Manifest
    from penstock.runtime.islands.ops.local_cluster import IslandStatus

REFRESH_S, LAST_ANSWERS_S = 0.5, 2.0
COLUMNS = ("stage", "frames in", "stopped", "forwarded", "waiting", "bytes out", "dropped", "p50", "p99", "next")


def penstock_up(arguments: Sequence[str]) -> None:
    """Run all islands of a bundle on this machine, show what they do, and stop them on Ctrl-C."""
    parser = parser_of(penstock_up, "penstock up bundle/ --input samples.npy --rate 50")
    parser.add_argument("bundle", type=Path, help="bundle folder, from penstock export")
    parser.add_argument("--input", type=Path, metavar="FILE", help="send the samples of a .npy file, over and over")
    parser.add_argument("--rate", type=float, default=50.0, help="samples per second (default: 50)")
    parser.add_argument("--seconds", type=float, help="stop after this time (default: on Ctrl-C)")
    args = parser.parse_args(arguments)
    require_links()
    if args.seconds is not None and not args.seconds > 0:
        raise DataError(f"--seconds must be greater than 0, got {args.seconds:g}.")
    if not args.rate > 0:
        raise DataError(f"--rate must be greater than 0, got {args.rate:g}.")
    asyncio.run(_run_cluster(args))


async def _run_cluster(args: argparse.Namespace) -> None:
    """Start all islands, send samples if there are any, show the table until stopped, and stop all."""
    from penstock.runtime.bundle.bundle import read_manifest
    from penstock.runtime.islands.ops.local_cluster import LocalCluster

    loop, stop, counts = asyncio.get_running_loop(), asyncio.Event(), Counter[str]()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the last: the terminal was closed
        loop.add_signal_handler(name, stop.set)
    manifest = read_manifest(args.bundle)
    samples = None if args.input is None else samples_of(args.input, manifest)
    with LocalCluster(args.bundle) as cluster:
        print(f"the first island is listening at {cluster.address}; press Ctrl-C to stop", flush=True)
        if args.seconds is not None:
            loop.call_later(args.seconds, stop.set)
        if samples is not None:
            feeding = asyncio.ensure_future(_feed(cluster.address, manifest, samples, args.rate, counts, stop))
        drawn = 0
        while not stop.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), REFRESH_S)
            if sys.stdout.isatty():
                drawn = _draw([*status_table(await asyncio.to_thread(cluster.status)), _tally(counts)], drawn)
        if samples is not None:
            await feeding
        _draw([*status_table(cluster.status()), _tally(counts)], drawn)


async def _feed(
    address: str, manifest: Manifest, samples: np.ndarray, rate_hz: float, counts: Counter[str], stop: asyncio.Event
) -> None:
    """Send samples at a rate until ``stop`` is set; then wait a moment for the last answers."""
    from penstock.runtime.islands.client import Client
    from penstock.runtime.islands.delivery import DropOldest, Outbox
    from penstock.runtime.islands.links.table import connector_for
    from penstock.runtime.islands.protocol import Answer

    def count(future: asyncio.Future) -> None:  # type: ignore[type-arg]
        if not future.cancelled():
            counts["answered" if isinstance(future.result(), Answer) else "dropped"] += 1

    async with Client(manifest, connector_for(address), outbox=Outbox(256, DropOldest())) as client:
        started = time.monotonic()
        for number, sample in enumerate(itertools.cycle(samples), start=1):
            (await client.submit(sample)).add_done_callback(count)
            counts["sent"] += 1
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, started + number / rate_hz - time.monotonic()))
            if stop.is_set():
                break
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(client.uplink.drained(), LAST_ANSWERS_S)


def status_table(islands: Sequence[IslandStatus]) -> list[str]:
    """Return one row per island, in columns, for a terminal of 100."""
    rows = [COLUMNS, *(_row(status, last=status is islands[-1]) for status in islands)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [*lines, *(f"stage {one.stage} ended: {one.last_line[:80]}" for one in islands if not one.alive)]


def _row(status: IslandStatus, *, last: bool) -> tuple[str, ...]:
    names = ("frames", "stopped", "forwarded", "waiting", "forwarded_bytes", "dropped")
    counts = [f"{status.metrics.get(name, 0):,.0f}" for name in names]
    latencies = ["–" if seconds is None else f"{1e3 * seconds:.2f} ms" for seconds in (status.p50_s, status.p99_s)]
    refuses = status.metrics.get("refused_by_next")
    downstream = "connected" if status.metrics.get("connected") else "refuses" if refuses else "away"
    return (str(status.stage), *counts, *latencies, ("–" if last else downstream) if status.alive else "(ended)")


def _tally(counts: Counter[str]) -> str:
    """Return what the client has sent and received; empty if it sends nothing."""
    kinds = ("sent", "answered", "dropped")
    return f"client: {', '.join(f'{counts[kind]:,} {kind}' for kind in kinds)}" if counts else ""


def _draw(lines: Sequence[str], before: int) -> int:
    """Print lines over those printed before; return how many."""
    if before:
        print(f"\033[{before}F\033[J", end="")
    print("\n".join(lines), flush=True)
    return len(lines)
