"""A table that is drawn anew while islands work."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.runtime.bundle.bundle import read_manifest
from penstock.runtime.cli.parsing import samples_of
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import DropOldest, Outbox
from penstock.runtime.islands.links.grpc import grpc_connector
from penstock.runtime.islands.ops.local_cluster import IslandStatus, LocalCluster
from penstock.runtime.islands.protocol import Answer

EVERY_S, LAST_S = 0.5, 2.0
COLUMNS = ("stage", "frames in", "stopped", "forwarded", "waiting", "bytes out", "dropped", "p50", "p99", "next")


async def watch_cluster(bundle: Path, samples: Path | None, rate_hz: float, seconds: float | None) -> None:
    """Start all islands, send samples if there are any, show the table until interrupted, and end all."""
    told = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the last: the terminal is gone
        asyncio.get_running_loop().add_signal_handler(name, told.set)
    tally = _Tally()
    manifest = read_manifest(bundle)
    if samples is not None:
        samples_of(samples, manifest)  # what is wrong with them is said before anything is started
    with LocalCluster(bundle) as cluster:
        print(f"the first island listens at {cluster.address}; Ctrl-C ends all", flush=True)
        feeding = asyncio.ensure_future(
            _feed(bundle, cluster.address, samples, rate_hz, tally, ended := asyncio.Event())
        )
        ends = None if seconds is None else time.monotonic() + seconds
        drawn = 0
        while not told.is_set() and (ends is None or time.monotonic() < ends):
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(told.wait(), EVERY_S)
            if sys.stdout.isatty():
                drawn = _draw([*table(await asyncio.to_thread(cluster.look)), str(tally)], drawn)
        ended.set()
        await feeding
        _draw([*table(cluster.look()), str(tally)], drawn)


class _Tally:
    """What the source has sent and heard."""

    def __init__(self) -> None:
        self.sent = self.answered = self.dropped = 0

    def __str__(self) -> str:
        return f"source: {self.sent:,} sent, {self.answered:,} answered, {self.dropped:,} dropped" if self.sent else ""


async def _feed(
    bundle: Path, address: str, samples: Path | None, rate_hz: float, tally: _Tally, ended: asyncio.Event
) -> None:
    """Send samples at a rate until that is ended; then wait a moment for the last answers."""
    if samples is None:
        return
    manifest = read_manifest(bundle)

    def heard(future: asyncio.Future) -> None:  # type: ignore[type-arg]
        if not future.cancelled():
            is_answer = isinstance(future.result(), Answer)
            tally.answered += is_answer
            tally.dropped += not is_answer

    async with Client(manifest, grpc_connector(address), outbox=Outbox(256, DropOldest())) as source:
        began = time.monotonic()
        for number, sample in enumerate(itertools.cycle(samples_of(samples, manifest))):
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), max(0.0, began + number / rate_hz - time.monotonic()))
            if ended.is_set():
                break
            (await source.submit(sample)).add_done_callback(heard)
            tally.sent += 1
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(source.uplink.drained(), LAST_S)


def table(islands: Sequence[IslandStatus]) -> list[str]:
    """Return a row for each island, in columns, for a terminal of 100."""
    rows = [COLUMNS, *(_row(seen, last=seen is islands[-1]) for seen in islands)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [*lines, *(f"stage {seen.stage} ended: {seen.last_words[:80]}" for seen in islands if not seen.alive)]


def _row(seen: IslandStatus, *, last: bool) -> tuple[str, ...]:
    names = ("frames", "stopped", "forwarded", "waiting", "forwarded_bytes", "dropped")
    counts = [f"{seen.counts.get(name, 0):,.0f}" for name in names]
    times = ["–" if value is None else f"{1e3 * value:.2f} ms" for value in (seen.p50_s, seen.p99_s)]
    downstream = (
        "there" if seen.counts.get("connected") else "refuses" if seen.counts.get("refused_by_next") else "away"
    )
    return (str(seen.stage), *counts, *times, ("–" if last else downstream) if seen.alive else "(ended)")


def _draw(lines: Sequence[str], before: int) -> int:
    """Write lines over those drawn before; return how many."""
    if before:
        print(f"\033[{before}F\033[J", end="")
    print("\n".join(lines), flush=True)
    return len(lines)
