"""`penstock demo`: train, calibrate and compare on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.show import AsJson, show


def demo_command(
    folder: Annotated[Path, typer.Option(help="Folder for plots and JSON.", metavar="FOLDER")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Random seed.", metavar="N")] = 0,
    as_json: AsJson = False,
) -> None:
    """Gate a real network on real data, wrist movements of ten people, in under three minutes.

    Example: `penstock demo`

    Trains a network, gates it and trains it on with the plain one as its teacher, calibrates it and compares the two.
    """
    from penstock.demo import run

    result = run(folder, seed=seed, progress=not as_json)
    show(as_json, result.to_json(), *result.tables())
