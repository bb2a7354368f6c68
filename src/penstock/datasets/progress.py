"""A bar on standard error, for what takes long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def tracked(things: Sequence[T], title: str) -> Iterable[T]:
    """Go through things one by one, with a bar where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(things, title, transient=True, console=console, disable=not console.is_terminal)
