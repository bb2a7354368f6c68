"""The command of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.show import AsJson, show


def demo(
    folder: Annotated[Path, typer.Option(help="Where plots and JSON go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same networks.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Gate a real network on real data, in under three minutes: wrist movements of ten people.

    Trains the plain and the gated network with the same budget, calibrates, and compares them.
    """
    from penstock.demo import run

    result = run(folder, seed=seed, talk=not as_json)
    show(as_json, result.to_json(), *result.tables())
