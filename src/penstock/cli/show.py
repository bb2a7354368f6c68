"""Print a command's result: JSON for machines, or tables and lines for people."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def show(as_json: bool, value: Any, *parts: Any) -> None:
    """Print the value as JSON, or else the parts."""
    if as_json:
        print(json.dumps(value, indent=1))
        return
    console = Console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def line(text: str) -> Text:
    """Return a line that is printed as it is: a path in it keeps its brackets and is not wrapped."""
    return Text(text)
