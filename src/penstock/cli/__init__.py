"""The command `penstock`: each command parses, calls one function, prints.

Exit codes: 0 done · 1 Penstock refused (the reason is on standard error) · 2 wrong usage · 130 interrupted.
"""

from __future__ import annotations

import os
import sys

try:
    import torch  # noqa: F401
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    sys.exit(f"error: the command penstock needs {missing.name!r}: pip install 'penstock[train]'")

from penstock.cli import data, demo, experiments, networks
from penstock.errors import PenstockError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Turn any PyTorch network into a gated, always-on network.\n\n"
    "A **model** is given as `package.module:function`, a function without arguments that returns a torch module. "
    "**Data** is given the same way: a function that returns an object or dict with `train`, `validation` and `test`, "
    "each a Dataset, a DataLoader or a pair of tensors (x, y), and perhaps `class_names`; label 0 is the background. "
    "A written network holds weights and no code, so commands that read it take its model again. Modules are looked "
    "for in the working directory too.\n\nThe usual way: `penstock cuts` to see where gates can stand, `penstock "
    "train`, `penstock calibrate`, `penstock evaluate`. `penstock demo` shows it all on real data.",
)

app.add_typer(data.app, name="data")
app.command()(networks.cuts)
app.command()(networks.train)
app.command()(networks.calibrate)
app.command()(networks.evaluate)
app.command()(experiments.reproduce)
app.command()(experiments.sweep)
app.command("results")(experiments.page)
app.command()(demo.demo)


def main() -> None:
    """Run the command; turn refusals into one line and an exit code."""
    sys.path.insert(0, os.getcwd())
    try:
        app()
    except PenstockError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {type(error).__name__}: ", end="")
        Console(stderr=True, soft_wrap=True).print(str(error), markup=False, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
