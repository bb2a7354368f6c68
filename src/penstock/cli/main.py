"""The command-line application: which commands there are, in order of use.

A command parses its arguments, calls one function of the library and prints the result. The commands of a device are
listed here and parsed in `penstock.runtime.cli`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from penstock.cli import data, wakeword
from penstock.cli.calibrate import calibrate_command
from penstock.cli.compare import compare_command
from penstock.cli.cuts import cuts_command
from penstock.cli.demo import demo_command
from penstock.cli.evaluate import evaluate_command
from penstock.cli.export import export_command
from penstock.cli.train import train_command
from penstock.runtime.cli import COMMANDS

GATE, DEVICE, WAKEWORD, START = "Gate a network", "Run it", "Wake words", "Data and demo"

ORDER = (
    *("cuts", "train", "calibrate", "evaluate", "compare", "export"),
    *("run", "listen", "island", "up", "certs", "serve"),
    *("wakeword", "data", "demo"),
)


class InOrderOfUse(TyperGroup):
    """A group that lists commands and sub-groups in the order of use; Typer lists all groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    cls=InOrderOfUse,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Turn any PyTorch network into a gated, always-on network.\n\n"
    "Example: `penstock cuts penstock.models.resnet:resnet8 --shape 1x28x28`\n\n"
    "Name a **model** as `package.module:function`: a function without arguments that returns a torch module. Name "
    "**data** the same way: a function that returns a dict or an object with `train`, `validation` and `test`, each a "
    "Dataset, a DataLoader or a pair of tensors (x, y), and optionally `class_names`. Label 0 is the background. "
    "Modules are also looked up in the working directory. A network file holds weights, not code, so commands that "
    "read one need its model too.",
)

app.command("cuts", rich_help_panel=GATE)(cuts_command)
app.command("train", rich_help_panel=GATE)(train_command)
app.command("calibrate", rich_help_panel=GATE)(calibrate_command)
app.command("evaluate", rich_help_panel=GATE)(evaluate_command)
app.command("compare", rich_help_panel=GATE)(compare_command)
app.command("export", rich_help_panel=GATE)(export_command)
for _name, _help in COMMANDS.items():  # listed here, parsed in penstock.runtime.cli
    app.command(_name, help=_help, rich_help_panel=DEVICE)(lambda: None)
app.add_typer(wakeword.app, name="wakeword", rich_help_panel=WAKEWORD)
app.add_typer(data.app, name="data", rich_help_panel=START)
app.command("demo", rich_help_panel=START)(demo_command)


def run_app() -> None:
    """Run the command that `sys.argv` names."""
    sys.path.insert(0, os.getcwd())
    app(prog_name="penstock")
