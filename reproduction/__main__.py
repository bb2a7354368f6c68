"""`python -m reproduction`: the paper's tables and figures, trained and measured again."""

from __future__ import annotations

import os
import sys

import typer

from penstock.errors import PenstockError
from reproduction import cli

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=__doc__)
app.command("run")(cli.reproduce)
app.command()(cli.sweep)
app.command("results")(cli.page)


def main() -> None:
    """Run a command; an error of Penstock's is one line and exit code 1."""
    sys.path.insert(0, os.getcwd())
    try:
        app(prog_name="python -m reproduction")
    except PenstockError as error:
        sys.exit(f"error: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
