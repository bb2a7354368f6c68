"""Run the benchmarks and write benchmarks/latest.json: machine, versions and a list of {figure, value, reach, holds}.

Running a single part replaces the rows of that part and keeps all others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks import cifar, doorbell, fashion, int8, islands, speed, surgery
from penstock.gating.tables import table_of
from penstock.runtime.files import write_atomically

LATEST = Path(__file__).parent / "latest.json"
PARTS: dict[str, Callable[[], list[Any]]] = {
    "training": speed.training,
    "predict": speed.predict,
    "surgery": surgery.measure,
    "fashion": fashion.measure,
    "chain": islands.chain,
    "wire": islands.wire,
    "hop": islands.hop,
    "torture": islands.torture,
    "garbage": islands.garbage,
    "start": islands.start,
    "doorbell": doorbell.measure,
    "int8": int8.measure,
    "cifar": cifar.measure,
}
LONG = ("doorbell", "int8", "cifar")
"""Parts that take hours: only on request."""


@dataclass(frozen=True)
class Row:
    """One entry of the list in latest.json."""

    part: str
    figure: str
    value: float
    reach: str
    holds: bool
    details: dict[str, Any]
    measured: str


def main() -> None:
    """Run all parts, or a single one."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="run only this part")
    only = parser.parse_args().only
    rows = {part: [row for row in _previous_rows() if row["part"] == part] for part in PARTS}
    for part in [only] if only else [part for part in PARTS if part not in LONG]:
        print(f"measuring {part} …", flush=True)
        measured = [
            Row(part, f.figure, f.value, f"{f.relation} {f.reach:g}", f.holds, f.details, date.today().isoformat())
            for f in PARTS[part]()
        ]
        rows[part] = [asdict(row) for row in measured]
        _write([row for part_rows in rows.values() for row in part_rows])
    table = table_of("figure", ">value", ">target", "holds", title="benchmarks/latest.json")
    for row in json.loads(LATEST.read_text())["figures"]:
        table.add_row(row["figure"], f"{row['value']:.4g}", row["reach"], "yes" if row["holds"] else "NO")
    Console(width=100).print(table)


def _previous_rows() -> list[dict[str, Any]]:
    return json.loads(LATEST.read_text())["figures"] if LATEST.exists() else []


def _write(rows: list[dict[str, Any]]) -> None:
    packages = ("penstock", "torch", "lightning", "torchmetrics", "numpy", "scipy", "onnxruntime", "grpcio")
    hardware = {
        "processor": torch.cpu.get_capabilities().get("cpu_name", platform.processor()),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    content = {"machine": hardware, "versions": versions, "figures": rows}
    write_atomically(LATEST, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
