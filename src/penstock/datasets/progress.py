"""A progress bar on standard error for long loops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def tracked(items: Iterable[T], title: str) -> Iterable[T]:
    """Iterate with a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, title, transient=True, console=console, disable=not console.is_terminal)
