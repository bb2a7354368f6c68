"""A comparison as tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from penstock.comparison.points import RATIOS, Point, averaged
from penstock.gating.tables import count, percent, table_of

if TYPE_CHECKING:
    from penstock.comparison.compare import Comparison

ANSWERS: dict[str, Callable[[Point], str]] = {
    "lost": lambda point: percent(point.lost),
    "accuracy": lambda point: percent(point.accuracy),
    "open": lambda point: percent(point.accuracy_open),
    "stopped": lambda point: percent(point.early_stopping),
}
"""Columns of what is answered: heading -> text."""


def comparison_tables(comparison: Comparison) -> list[RenderableType]:
    """Return answers and costs at 1:9, the costs of rarer positives, what is missing, and the verdict."""
    first, *rarer = range(len(RATIOS))
    seeds = f", mean of {comparison.seeds} seeds" if comparison.seeds > 1 else ""
    title = f"On {comparison.samples:,} test samples, {comparison.positives:,} of interest{seeds}; costs a sample"
    main = _table(comparison, f"{title} at 1:{RATIOS[first]}", ANSWERS | _costs(first))
    main.caption, main.caption_justify = (
        "lost, stopped: of the positives, of the negatives; open: accuracy if nothing is stopped; "
        "time: measured stages, added up by the shares that run",
        "left",
    )
    others = [_table(comparison, f"Costs a sample at 1:{RATIOS[i]}", _costs(i)) for i in rarer]
    missing = [f"{name} is left out: {reason}" for name, reason in comparison.left_out.items()]
    missing += [f"{name} has no time: {reason}" for name, reason in comparison.untimed.items()]
    return [main, *others, *map(escape, missing), f"[bold]{escape(comparison.verdict)}[/]"]


def _table(comparison: Comparison, title: str, columns: dict[str, Callable[[Point], str]]) -> Table:
    """Return a table with a section for each permitted loss."""
    table = table_of("contestant", *(f">{heading}" for heading in columns), title=title)
    for allowed in comparison.lost:
        table.add_row(f"[bold]≤ {100 * allowed:g} % lost")
        for name in comparison.contestants:
            point = averaged(comparison.of(name, allowed))
            table.add_row(name, *(text(point) for text in columns.values()))
        table.add_section()
    return table


def _costs(ratio: int) -> dict[str, Callable[[Point], str]]:
    """Return the columns of the costs at one of `RATIOS`."""
    return {
        "MACs": lambda point: count(point.costs[ratio].macs),
        "bytes": lambda point: count(point.costs[ratio].payload_bytes),
        "time": lambda point: _time(point.costs[ratio].seconds),
    }


def _time(seconds: float | None) -> str:
    """Return a time with three significant digits.

    >>> _time(0.0000456), _time(0.00123), _time(None)
    ('45.6 µs', '1.23 ms', '')
    """
    if seconds is None:
        return ""
    return f"{1e6 * seconds:.3g} µs" if seconds < 999.5e-6 else f"{1e3 * seconds:.3g} ms"
