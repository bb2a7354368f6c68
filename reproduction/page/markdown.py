"""Tables in Markdown that read as plain text too: every column is as wide as its widest cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a column whose name starts with '>' is set to the right.

    >>> print(table(["name", ">n"], [["one", "1"], ["twelve", "12"]]))
    | name   |  n |
    |:-------|---:|
    | one    |  1 |
    | twelve | 12 |
    """
    right = [column.startswith(">") for column in columns]
    cells = [[column.removeprefix(">") for column in columns], *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(2, *map(len, column)) for column in zip(*cells, strict=True)]
    dashes = ["-" * (width + 1) for width in widths]
    rule = [f"{dash}:" if at_right else f":{dash}" for dash, at_right in zip(dashes, right, strict=True)]
    lines = [_line(row, widths, right) for row in cells]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if at_right else cell.ljust(width)
        for cell, width, at_right in zip(cells, widths, right, strict=True)
    ]
    return f"| {' | '.join(padded)} |"


def _plain(cell: str) -> str:
    """Return a cell on one line, whose bars do not end it."""
    return " ".join(cell.split()).replace("|", "\\|")
