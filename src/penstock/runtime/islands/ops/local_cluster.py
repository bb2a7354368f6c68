"""All islands of a bundle as processes of this machine, for a try-out."""

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
from types import TracebackType

from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import DeliveryError
from penstock.runtime.bundle.bundle import read_manifest

START_S, END_S = 30.0, 15.0
"""How long an island may take to start, and to end."""

MAIN = "from penstock.cli import main; main()"


@dataclass(frozen=True)
class IslandStatus:
    """What an island said of itself last.

    Attributes:
        counts: by the name of the metric, without "penstock_" and "_total".
        p50_s, p99_s: from a frame's arrival to its decision; None before the first.
        last_words: the last line that it wrote, of one that has ended.
    """

    stage: int
    alive: bool
    counts: dict[str, float]
    p50_s: float | None = None
    p99_s: float | None = None
    last_words: str = ""


class LocalCluster:
    """Starts the islands of a bundle, the last one first, and ends them all.

        with LocalCluster(Path("bundle")) as cluster:
            print(cluster.address)

    Attributes:
        address: of the first island.

    Raises:
        DeliveryError: when an island does not start.
    """

    def __init__(self, bundle: Path, *, options: tuple[str, ...] = ()):
        self._bundle, self._options = bundle, options
        self._stages = len(read_manifest(bundle).stages)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._metrics: list[str] = []
        self._said: list[Path] = []
        self._files = ExitStack()
        self.address = ""

    def __enter__(self) -> LocalCluster:
        downstream: str | None = None
        try:
            for stage in range(self._stages, 0, -1):
                downstream = self._start(stage, downstream)
        except BaseException:
            self.end()
            raise
        self.address = downstream or ""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End all islands, the first one first, so that each answers what it has; those that do not are killed."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._files.close()

    def look(self) -> list[IslandStatus]:
        """Ask all islands what they have done, the first one first."""
        each = zip(reversed(self._processes), reversed(self._metrics), reversed(self._said), strict=True)
        return [_seen(stage, *island) for stage, island in enumerate(each, start=1)]

    def _start(self, stage: int, downstream: str | None) -> str:
        """Start an island; return its address."""
        command = [sys.executable, "-c", MAIN, "island", str(self._bundle), "--stage", str(stage), *self._options]
        command += ["--metrics", "127.0.0.1:0", *(() if downstream is None else ("--next", downstream))]
        said = self._files.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - a pipe not read would fill
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | {"GRPC_VERBOSITY": "NONE"},
            start_new_session=True,  # an interrupt of the terminal is for us; we end them in order
        )
        self._processes.append(process)
        self._said.append(Path(said.name))
        found = _started(process, Path(said.name), stage)
        self._metrics.append(found["metrics"])
        return found["address"]


_READY = re.compile(r"listens at (?P<address>\S+:\d+)\nmetrics at (?P<metrics>http://\S+)\n")
"""What an island says when it has started."""


def _started(process: subprocess.Popen[bytes], said: Path, stage: int) -> re.Match[str]:
    """Wait until an island has started; return what it says then."""
    ends = time.monotonic() + START_S
    while True:
        ended = process.poll() is not None or time.monotonic() > ends  # first: what it says before that counts
        text = said.read_text()
        if found := _READY.search(text):
            return found
        if ended:
            raise DeliveryError(f"the island of stage {stage} did not start: {text.strip() or 'it said nothing'}")
        time.sleep(0.02)


def _seen(stage: int, process: subprocess.Popen[bytes], url: str, said: Path) -> IslandStatus:
    """Read an island's metrics; of one that is gone, its last words."""
    if process.poll() is not None:
        lines = said.read_text().strip().splitlines()
        return IslandStatus(stage, False, {}, last_words=lines[-1] if lines else "")
    text = ""
    with suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
        text = answer.read().decode()
    counts: dict[str, float] = {}
    quantiles: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("penstock_").removesuffix("_total")
            if name == "here_seconds":
                quantiles[sample.labels["q"]] = sample.value
            else:
                counts[name] = counts.get(name, 0) + sample.value
    return IslandStatus(stage, True, counts, quantiles.get("0.5"), quantiles.get("0.99"))
