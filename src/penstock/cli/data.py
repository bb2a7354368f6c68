"""The commands on data sets: list, fetch, check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.show import AsJson, line, show
from penstock.datasets.fetch import catalogue
from penstock.gating.tables import table_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, fetch and check the data sets that Penstock knows.\n\n"
    "`penstock data list` says which are on this machine. `penstock data fetch cifar10` downloads one into the cache "
    "folder, which is `$PENSTOCK_DATA`, or else the platform's own. Loaders never download: they look there, and where "
    "a system or Python package puts its files, or in the folder they are given.\n\n"
    "`penstock data check image-folder --folder photos` looks at a folder of your own.",
)

DataSet = Annotated[str, typer.Argument(help="Its name, as in penstock data list.", show_default=False)]


@app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """Say of each data set what it is, where it is on this machine, and how to get it.

    Example: `penstock data list`
    """
    rows = catalogue.listing()
    show(as_json, [asdict(row) for row in rows], *_data_tables(rows), _own_folders())


@app.command("fetch")
def data_fetch(name: DataSet, as_json: AsJson = False) -> None:
    """Download a data set into the cache, unless it is on this machine already.

    A download that was interrupted goes on where it ended, and only a file with the right checksum is kept. What is
    there and not whole is an error.

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

    Of a folder of your own, image-folder or sound-folder, every file is read, and the samples of each class are
    counted. Where it has no parts of its own, they are those that its loader makes by default.

    Example: `penstock data check cifar10`, or `penstock data check sound-folder --folder clips`
    """
    checked = catalogue.check(name, folder)
    counts = ", ".join(f"{part} {count:,}" for part, count in checked.samples.items())
    tables = [] if checked.classes is None else [_classes_table(checked.classes)]
    show(as_json, asdict(checked), *tables, f"{name} is whole: {counts}.", line(f"Read from {checked.found}"))


def _data_tables(rows: list[catalogue.Row]) -> list[Table]:
    """Return what the data sets are, and below it where they are or how to get them."""
    what = table_of("name", "here", ">size", "licence", "what it is", title="Data sets")
    where = table_of("name", "where it is, or how to get it", title="Places")
    for row in rows:
        what.add_row(row.name, "no" if row.found is None else "yes", row.size, row.licence, row.description)
        where.add_row(row.name, Text(row.get if row.found is None else row.found))
    return [what, where]


def _own_folders() -> str:
    """Say that any folder can be read, and by which functions."""
    readers = ", ".join(f"{own.loader.replace(':', '.')} reads {own.files}" for own in catalogue.FOLDERS.values())
    checks = " and ".join(f"penstock data check {name} --folder FOLDER" for name in catalogue.FOLDERS)
    return f"Any folder that has a folder for each class can be read too: {readers}. To look at one: {checks}."


def _classes_table(classes: dict[str, dict[str, int]]) -> Table:
    """Return how many samples each class has in each part."""
    table = table_of("class", *(f">{part}" for part in classes), title="Samples")
    for name in classes["train"]:
        table.add_row(Text(name), *(f"{counts[name]:,}" for counts in classes.values()))
    return table
