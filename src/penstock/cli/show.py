"""What a command prints: JSON for machines, or tables and lines for people; and the option that chooses."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else.")]


def show(as_json: bool, value: Any, *parts: Any) -> None:
    """Print the value as JSON, or else the parts."""
    if as_json:
        print(json.dumps(value, indent=1))
        return
    console = Console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def line(text: str) -> Text:
    """Return a line with a path in it, which keeps its brackets and is not broken."""
    return Text(text)
