"""The commands on data sets: list, fetch, check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.show import AsJson, line, show
from penstock.data import catalogue
from penstock.report.tables import table_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, fetch and check the data sets that Penstock knows.\n\n"
    "`penstock data list` says which are on this machine. `penstock data fetch cifar10` downloads one into the cache "
    "folder, which is `$PENSTOCK_DATA`, or else the platform's own. Loaders never download: they look there, and where "
    "a system or Python package puts its files, or in the folder they are given.",
)

DataSet = Annotated[str, typer.Argument(help="Its name, as in penstock data list.", show_default=False)]


@app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """Say of each data set what it is, where it is on this machine, and how to get it.

    Example: `penstock data list`
    """
    rows = catalogue.listing()
    show(as_json, [asdict(row) for row in rows], *_data_tables(rows))


@app.command("fetch")
def data_fetch(name: DataSet, as_json: AsJson = False) -> None:
    """Download a data set into the cache, unless it is on this machine already.

    A download that was interrupted goes on where it ended, and only a file with the right checksum is kept.

    Example: `penstock data fetch cifar10`, or `PENSTOCK_DATA=/big/disk penstock data fetch speech-commands-v0.02`
    """
    found = catalogue.fetch(name, progress=not as_json)
    show(as_json, {"name": name, "found": str(found.at)}, line(f"{name}: {found.at}"))


@app.command("check")
def data_check(
    name: DataSet,
    folder: Annotated[
        Path | None, typer.Option(help="Where it is; default: wherever its loader finds it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See whether a data set is whole: compare its checksums and lists, and count its samples.

    Example: `penstock data check cifar10`, or `penstock data check imagenet --folder /data/imagenet`
    """
    checked = catalogue.check(name, folder)
    counts = ", ".join(f"{part} {count:,}" for part, count in checked.samples.items())
    show(as_json, asdict(checked), f"{name} is whole: {counts}.", line(f"Read from {checked.found}"))


def _data_tables(rows: list[catalogue.Row]) -> list[Table]:
    """Return what the data sets are, and below it where they are or how to get them."""
    what = table_of("name", "here", ">size", "licence", "what it is", title="Data sets")
    where = table_of("name", "where it is, or how to get it", title="Places")
    for row in rows:
        what.add_row(row.name, "no" if row.found is None else "yes", row.size, row.licence, row.description)
        where.add_row(row.name, Text(row.get if row.found is None else row.found))
    return [what, where]
