"""`penstock compare`: a gated network against what one would do instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.arguments import DataName, ModelName, load_data, load_model, parse_amount
from penstock.cli.show import AsJson, line, show
from penstock.datasets.loading import Data
from penstock.errors import DataError, StorageError, require

PARTS = ("train", "validation", "test")

training_option = partial(typer.Option, rich_help_panel="Training")
measuring_option = partial(typer.Option, rich_help_panel="Measuring")
Names = Annotated[
    list[str] | None,
    training_option(
        help="Contestants besides yours: gated, gate-only, early-exit, two-networks; a list, or repeated. "
        "Default: all.",
        metavar="NAMES",
        show_default=False,
    ),
]


def compare_command(
    model: ModelName,
    data: DataName,
    at: Annotated[
        str, training_option(help="Depth of the gate, or the module it comes after.", metavar="PLACE")
    ] = "0.4",
    keep: Annotated[
        str,
        training_option(help='What the mask lets cross: 410 values, a share or "1640 bytes".', metavar="AMOUNT"),
    ] = "0.3",
    background: Annotated[int, training_option(help="Class of the negatives.", metavar="CLASS")] = 0,
    epochs: Annotated[int, training_option(help="Passes over the training data, of each.", metavar="N")] = 20,
    batch_size: Annotated[int, training_option(help="Samples per step.", metavar="N")] = 256,
    seeds: Annotated[int, training_option(help="How many times everything is trained.", metavar="N")] = 3,
    only: Names = None,
    folder: Annotated[
        Path | None,
        training_option(help="Folder for what is finished; run the same command again to resume.", metavar="FOLDER"),
    ] = None,
    lost: Annotated[
        list[str] | None,
        measuring_option(
            help="Shares of positives that may be lost; a list, or repeated. Default: 0.005,0.01,0.02,0.05.",
            metavar="SHARES",
            show_default=False,
        ),
    ] = None,
    plots: Annotated[Path | None, measuring_option(help="Write a picture to this folder.", metavar="FOLDER")] = None,
    out: Annotated[
        Path | None, measuring_option("--out", "-o", help="Write the comparison as JSON.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train your network alone, gated, and in the ways you might choose instead; measure all alike.

    Example: `penstock compare -m mine:network -d mine:data --folder runs/compare --plots plots/`

    The others are a gate without a mask on the untouched network, an early exit (BranchyNet), and a small network in
    front that wakes yours. Thresholds are chosen on validation data, everything is measured on test data.
    """
    comparison = require("penstock.comparison.compare", extra="train")  # Lightning takes a second to import
    if out is not None and out.is_dir():
        raise StorageError(f"{out} is a folder; expected the name of a file.")
    config = require("penstock.comparison.config", extra="train")
    options: dict[str, Any] = {"lost": _shares(lost)} if lost else {}
    options |= {"only": tuple(name.replace("-", " ") for name in _listed(only))} if only else {}
    splits = load_data(data)
    result = comparison.compare(
        partial(load_model, model),
        *(_split(splits, part) for part in PARTS),
        config=config.CompareConfig(
            at=_place(at),
            keep=parse_amount(keep),
            epochs=epochs,
            batch_size=batch_size,
            background=background,
            seeds=seeds,
            folder=folder,
            progress=not as_json,
            **options,
        ),
    )
    if out is not None:
        result.save(out)
    written = [*([] if plots is None else [result.plot(plots)]), *([] if out is None else [out])]
    tables = require("penstock.comparison.tables", extra="train").comparison_tables(result)
    show(as_json, result.to_json(), *tables, *(line(f"Written: {path}") for path in written))


def _place(text: str) -> float | str:
    """Return a depth, or else the name of a module.

    >>> _place("0.4"), _place("layer2"), _place("1")
    (0.4, 'layer2', '1')
    """
    try:
        depth = float(text)
    except ValueError:
        return text
    return depth if 0 < depth < 1 else text


def _listed(texts: Sequence[str]) -> list[str]:
    """Return the parts of lists: an option may be repeated, and each may be a list."""
    return [part.strip() for text in texts for part in text.split(",")]


def _shares(texts: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _listed(texts))
    except ValueError as error:
        raise DataError(
            f"--lost {' --lost '.join(texts)}: expected shares such as 0.01,0.02, for 1 and 2 %."
        ) from error


def _split(splits: Mapping[str, Any], part: str) -> Data:
    if splits.get(part) is None:
        known = " and ".join(key for key in PARTS if splits.get(key) is not None)
        raise DataError(
            f"expected data with train, validation and test, got {known}. Thresholds are chosen on validation data and "
            "everything is measured on test data: hold out both."
        )
    return splits[part]  # type: ignore[no-any-return]
