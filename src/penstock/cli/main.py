"""The commands that train, measure and export: each parses, calls one function, prints."""

from __future__ import annotations

import os
import sys

import torch  # noqa: F401 - missing, it is named first
import typer

from penstock.cli import data, demo, judge, networks, wakeword
from penstock.runtime.cli.run import COMMANDS

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
    "train`, `penstock calibrate`, `penstock evaluate`, `penstock export`, and on the device `penstock run`. `penstock "
    "demo` shows it all on real data.",
)

app.add_typer(data.app, name="data")
app.command()(networks.cuts)
train = typer.Typer(
    cls=wakeword.NetworkByDefault,
    rich_markup_mode="markdown",
    help="Train: a network of yours (the default), or a wake word from a folder of clips.",
    no_args_is_help=True,
)
train.command("network")(networks.train)
train.command("wakeword")(wakeword.wakeword)
app.add_typer(train, name="train")
app.command()(networks.calibrate)
app.command()(networks.evaluate)
app.command()(networks.export)
for _name, _command in COMMANDS.items():  # parsed elsewhere, and listed here
    app.command(_name, help=_command.__doc__)(lambda: None)
app.command()(judge.judge)
app.command()(demo.demo)


def run_app() -> None:
    """Run a command."""
    sys.path.insert(0, os.getcwd())
    app()
