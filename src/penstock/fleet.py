"""All islands of a bundle as processes of this machine, for a try-out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from prometheus_client.parser import text_string_to_metric_families

from penstock.bundle import read_manifest
from penstock.errors import DeliveryError

START_S, END_S = 30.0, 15.0
MAIN = "from penstock.cli import main; main()"


@dataclass(frozen=True)
class Seen:
    """What an island said of itself last.

    Attributes:
        counts: by the name of the metric, without "penstock_" and "_total".
        p50_s, p99_s: from a frame's arrival to its decision; None before the first.
    """

    stage: int
    alive: bool
    counts: dict[str, float]
    p50_s: float | None = None
    p99_s: float | None = None


class Fleet:
    """Starts the islands of a bundle, the last one first, and ends them all.

        with Fleet(Path("bundle")) as fleet:
            print(fleet.address)

    Attributes:
        address: of the first island.

    Raises:
        DeliveryError: when an island does not start.
    """

    def __init__(self, bundle: Path, *, options: tuple[str, ...] = ()):
        self._bundle, self._options = bundle, options
        self._stages = len(read_manifest(bundle).stages)
        self._processes: list[subprocess.Popen[str]] = []
        self._metrics: list[str] = []
        self.address = ""

    def __enter__(self) -> Fleet:
        onward: str | None = None
        try:
            for stage in range(self._stages, 0, -1):
                onward = self._start(stage, onward)
        except BaseException:
            self.end()
            raise
        self.address = onward or ""
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
            process.communicate()
        self._processes.clear()

    def look(self) -> list[Seen]:
        """Ask all islands what they have done, the first one first."""
        pairs = zip(reversed(self._processes), reversed(self._metrics), strict=True)
        return [
            _seen(stage, process.poll() is None, metrics) for stage, (process, metrics) in enumerate(pairs, start=1)
        ]

    def _start(self, stage: int, onward: str | None) -> str:
        """Start an island; return its address."""
        command = [sys.executable, "-c", MAIN, "island", str(self._bundle), "--stage", str(stage), *self._options]
        command += ["--metrics", "127.0.0.1:0", *(() if onward is None else ("--next", onward))]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GRPC_VERBOSITY": "NONE"},
            start_new_session=True,  # an interrupt of the terminal is for us; we end them in order
        )
        assert process.stdout is not None and process.stderr is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        found = [
            re.search(pattern, line) for pattern, line in zip((r"at (\S+:\d+)$", r"(http://\S+)$"), said, strict=True)
        ]
        if found[0] is None or found[1] is None:
            process.kill()
            reason = process.communicate()[1].strip()
            raise DeliveryError(f"the island of stage {stage} did not start: {reason or 'it said nothing'}")
        self._processes.append(process)
        self._metrics.append(found[1][1])
        return found[0][1]


def _seen(stage: int, alive: bool, url: str) -> Seen:
    """Read an island's metrics; nothing of one that is gone."""
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
    return Seen(stage, alive, counts, quantiles.get("0.5"), quantiles.get("0.99"))
