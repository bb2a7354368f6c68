"""Run all islands of a bundle as processes on this machine, for development."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import DeliveryError
from penstock.runtime.bundle.bundle import read_manifest

START_TIMEOUT_S, STOP_TIMEOUT_S = 30.0, 15.0  # how long an island may take to start and to stop

MAIN = "from penstock.cli import main; main()"


@dataclass(frozen=True)
class IslandStatus:
    """The state of one island."""

    stage: int
    alive: bool
    metrics: dict[str, float]  # by name, without "penstock_" and "_total"
    p50_s: float | None = None  # quantiles of the time from a frame to the gate's decision; None before the first frame
    p99_s: float | None = None
    last_line: str = ""  # the last line of its output, if it has ended


class LocalCluster:
    """Starts the islands of a bundle, the last one first, and stops them all; ``address`` is that of the first.

    Raises:
        DeliveryError: on entering, if an island does not start.
    """

    def __init__(self, bundle: Path):
        self._bundle = bundle
        self._islands: list[tuple[subprocess.Popen[bytes], str, Path]] = []  # each with its metrics' URL and its log
        self._running = ExitStack()  # closing it stops the first island first, so that each can answer what it has
        self.address = ""

    def __enter__(self) -> LocalCluster:
        with ExitStack() as stack:
            for stage in range(len(read_manifest(self._bundle).stages), 0, -1):
                self.address = self._start(stack, stage)
            self._running = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def status(self) -> list[IslandStatus]:
        """Return the status of all islands, the first one first."""
        return [_status(stage, *island) for stage, island in enumerate(self._islands, start=1)]

    def _start(self, stack: ExitStack, stage: int) -> str:
        """Start the island before the present first one; return its address."""
        command = [sys.executable, "-c", MAIN, "island", str(self._bundle), "--stage", str(stage)]
        command += ["--metrics", "127.0.0.1:0", *(("--next", self.address) if self.address else ())]
        log = stack.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - nobody reads a pipe
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"GRPC_VERBOSITY": "NONE"},
            start_new_session=True,  # Ctrl-C is for this process, which stops them in order
        )
        stack.callback(_stop, process)
        ready = _wait_until_ready(process, Path(log.name), stage)
        self._islands.insert(0, (process, ready["metrics"], Path(log.name)))
        return ready["address"]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop an island; kill it if it does not stop."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# What an island prints once it is ready.
_READY = re.compile(r"listening at (?P<address>\S+)\nmetrics at (?P<metrics>http://\S+)\n")


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, stage: int) -> re.Match[str]:
    """Wait until an island is ready; return its addresses."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        ended = process.poll() is not None or time.monotonic() > deadline  # before reading: its last output counts
        text = log.read_text()
        if found := _READY.search(text):
            return found
        if ended:
            raise DeliveryError(f"the island of stage {stage} did not start: {text.strip() or 'no output'}")
        time.sleep(0.02)


def _status(stage: int, process: subprocess.Popen[bytes], url: str, log: Path) -> IslandStatus:
    """Read an island's metrics, or the last line of its output if it has ended."""
    if process.poll() is not None:
        lines = log.read_text().strip().splitlines()
        return IslandStatus(stage, False, {}, last_line=lines[-1] if lines else "")
    text = ""
    with suppress(OSError), urllib.request.urlopen(url, timeout=2) as response:
        text = response.read().decode()
    metrics: dict[str, float] = {}
    quantiles: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("penstock_").removesuffix("_total")
            if name == "latency_seconds":
                quantiles[sample.labels["quantile"]] = sample.value
            else:
                metrics[name] = metrics.get(name, 0) + sample.value
    return IslandStatus(stage, True, metrics, quantiles.get("0.5"), quantiles.get("0.99"))
