"""`python -m reproduction data`: list, fetch and check the paper's data sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from penstock.gating.tables import table_of
from reproduction.datasets.catalogue import CATALOGUE

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, fetch and check the paper's data sets.\n\n`fetch` downloads into the cache folder: `$PENSTOCK_DATA`, "
    "or the platform's own.",
)

DataSet = Annotated[str, typer.Argument(help="Name of the data set, as listed by `list`.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


@app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """Show what each data set is, where it is on this machine, and how to get it.

    Example: `python -m reproduction data list`
    """
    rows = CATALOGUE.listing()
    what = table_of("name", "here", ">size", "licence", "description", title="Data sets")
    where = table_of("name", "location, or how to get it", title="Locations")
    for row in rows:
        what.add_row(row.name, "no" if row.found is None else "yes", row.size, row.licence, row.description)
        where.add_row(row.name, Text(row.found or row.get))
    _show(as_json, [asdict(row) for row in rows], what, where)


@app.command("fetch")
def data_fetch(name: DataSet, as_json: AsJson = False) -> None:
    """Download a data set into the cache, unless it is on this machine already; an interrupted download resumes.

    Example: `python -m reproduction data fetch cifar10`
    """
    found = CATALOGUE.fetch(name, progress=not as_json)
    _show(as_json, {"name": name, "found": str(found.path)}, Text(f"{name}: {found.path}"))


@app.command("check")
def data_check(
    name: DataSet,
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the data set; default: wherever its loader finds it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify that a data set is complete: its checksums, its lists and its number of samples.

    Example: `python -m reproduction data check cifar10`
    """
    checked = CATALOGUE.check(name, folder)
    counts = ", ".join(f"{part} {count:,}" for part, count in checked.samples.items())
    _show(as_json, asdict(checked), Text(f"{name} is complete: {counts}."), Text(f"Read from {checked.found}"))


def _show(as_json: bool, value: Any, *parts: Any) -> None:
    if as_json:
        print(json.dumps(value, indent=1))
        return
    for part in parts:
        Console().print(part, soft_wrap=isinstance(part, Text))
