"""The `data` commands: list, fetch and check the data sets that Penstock knows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.show import AsJson, line, show
from penstock.datasets.fetch.catalogue import ListingRow
from penstock.datasets.fetch.table import CATALOGUE
from penstock.gating.tables import table_of

DataSet = Annotated[str, typer.Argument(help="Name of the data set, as listed by `list`.", show_default=False)]
Folder = Annotated[
    Path | None, typer.Option(help="Folder of the data set; default: wherever its loader finds it.", show_default=False)
]


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, fetch and check data sets.\n\n"
    "`penstock data fetch speech-commands-v0.02` downloads one into the cache folder: `$PENSTOCK_DATA`, or the "
    "platform's own. Loaders never download: they read the folder they are given, the cache, or an installed package."
    "\n\n`penstock data check image-folder --folder photos` checks a folder of your own.",
)


@app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """Show what each data set is, where it is on this machine, and how to get it.

    Example: `penstock data list`
    """
    rows = CATALOGUE.listing()
    show(as_json, [asdict(row) for row in rows], *_listing_tables(rows), _folder_formats())


@app.command("fetch")
def data_fetch(name: DataSet, as_json: AsJson = False) -> None:
    """Download a data set into the cache, unless it is on this machine already.

    An interrupted download resumes, and only a file with the right checksum is kept. Existing but incomplete data is
    an error.

    Example: `penstock data fetch speech-commands-v0.02`, or `PENSTOCK_DATA=/big/disk penstock data fetch
    speech-commands-v0.02`
    """
    found = CATALOGUE.fetch(name, progress=not as_json)
    show(as_json, {"name": name, "found": str(found.path)}, line(f"{name}: {found.path}"))


@app.command("check")
def data_check(name: DataSet, folder: Folder = None, as_json: AsJson = False) -> None:
    """Verify that a data set is complete: its checksums, its lists and its number of samples.

    For image-folder and sound-folder, your own folders, every file is read and the samples of each class are counted.

    Example: `penstock data check wrist`, or `penstock data check sound-folder --folder clips`
    """
    checked = CATALOGUE.check(name, folder)
    counts = ", ".join(f"{part} {count:,}" for part, count in checked.samples.items())
    tables = [] if checked.classes is None else [_classes_table(checked.classes)]
    show(as_json, asdict(checked), *tables, f"{name} is complete: {counts}.", line(f"Read from {checked.found}"))


def _listing_tables(rows: list[ListingRow]) -> list[Table]:
    """Return one table of what the data sets are, and one of where they are or how to get them."""
    what = table_of("name", "here", ">size", "licence", "description", title="Data sets")
    where = table_of("name", "location, or how to get it", title="Locations")
    for row in rows:
        what.add_row(row.name, "no" if row.found is None else "yes", row.size, row.licence, row.description)
        where.add_row(row.name, Text(row.get if row.found is None else row.found))
    return [what, where]


def _folder_formats() -> str:
    """Return how to load and check folders of the user's own."""
    loaders = ", ".join(f"{one.loader} loads {one.files}" for one in CATALOGUE.folders.values())
    checks = " or ".join(f"penstock data check {name} --folder FOLDER" for name in CATALOGUE.folders)
    return f"Your own folders, with one sub-folder per class, can be used too: {loaders}. To check one: {checks}."


def _classes_table(classes: dict[str, dict[str, int]]) -> Table:
    """Return the number of samples of each class in each split."""
    table = table_of("class", *(f">{part}" for part in classes), title="Samples")
    for name in classes["train"]:
        table.add_row(Text(name), *(f"{counts[name]:,}" for counts in classes.values()))
    return table
