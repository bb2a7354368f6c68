"""Reproduce the tables and figures of *Gated Compression Layers for Efficient Always-On Models*."""

from __future__ import annotations

import os
import sys

import typer

from penstock.errors import PenstockError
from reproduction import cli
from reproduction.datasets.cli import app as data

HELP = f"""{__doc__}

Steps: `run list` shows the experiments, `run table1` trains and measures one of them, `results` writes docs/results.md
from all finished runs. `sweep` selects α and β on validation data; without it the paper's values are used.
"""

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", suggest_commands=True, help=HELP
)
app.command()(cli.run)
app.command()(cli.sweep)
app.command()(cli.results)
app.add_typer(data, name="data")


def main() -> None:
    """Run a command; print errors as one line and exit with code 1."""
    sys.path.insert(0, os.getcwd())
    try:
        app(prog_name="python -m reproduction")
    except PenstockError as error:
        sys.exit(f"error: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
