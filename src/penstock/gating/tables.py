"""Tables of cuts and gated networks for a terminal of 100 columns, and helpers for other tables."""

from __future__ import annotations

import io
from collections.abc import Iterable
from itertools import groupby
from math import exp, prod
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table

from penstock.gating.layers.gated_compression import FLOAT_BYTES

if TYPE_CHECKING:
    from penstock.gating.network import GatedNetwork
    from penstock.gating.surgery.cuts import Cut

WIDTH = 100


def cuts_table(cuts: Iterable[Cut]) -> Table:
    """Return a table of the legal cuts, ends of blocks first; places with the same MACs and shape share a row."""
    found = list(cuts)
    columns = ("name", ">depth", ">MACs before", ">shape", ">values", ">bytes")
    table = table_of(*columns, title="Legal cuts")
    ends = [[cut] for cut in found if cut.block_end]
    inside = [
        list(alike)
        for _, alike in groupby((cut for cut in found if not cut.block_end), key=lambda cut: (cut.macs, cut.shape))
    ]
    for rows in (ends, inside):
        for alike in rows:
            cut, values = alike[-1], prod(alike[-1].shape)
            names = "\n".join(each.name for each in alike)
            table.add_row(
                names,
                f"{cut.depth:.2f}",
                f"{count(cut.macs)} {cut.macs_share:5.0%}",
                dims(cut.shape),
                f"{values:,}",
                f"{values * FLOAT_BYTES:,}",
            )
        if rows is ends and ends and inside:
            table.add_section()
    if ends and inside:
        table.caption = "above the line: ends of blocks; below it: places inside blocks, of one shape in one row"
        table.caption_justify = "left"
    return table


def network_table(net: GatedNetwork) -> Table:
    """Return a table with one row for each stage and the layer after it."""
    columns = ("stage", "cut after", ">MACs", ">features", ">kept", ">bytes", "gate passes", ">from score")
    table = table_of(*columns, title=f"Gated {net.spec.model}")
    for i, macs in enumerate(net.spec.macs):
        macs += sum(layer.transform_macs for layer in net.layers[max(i - 1, 0) : i + 1])
        if i == len(net.layers):
            table.add_row(str(i + 1), "(end)", count(macs))
            continue
        layer = net.layers[i]
        positives, score = "(no gate)", ""
        if layer.gate is not None:
            positives = "all but background" if layer.gate.positives is None else str(set(layer.gate.positives))
            score = threshold_score(layer.gate.threshold.item())
            macs += layer.gate_macs
        kept = f"{layer.transmitted_values:,}"
        payload = f"{layer.transmitted_bytes:,}"
        table.add_row(str(i + 1), net.spec.at[i], count(macs), dims(layer.feature), kept, payload, positives, score)
    return table


def table_of(*columns: str, title: str) -> Table:
    """Return an empty table; columns whose name starts with '>' are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")
    return table


def render(*parts: RenderableType) -> str:
    """Return tables as plain text of 100 columns."""
    text = io.StringIO()
    console = Console(file=text, width=WIDTH, color_system=None, force_terminal=False)
    for part in parts:
        console.print(part)
    return text.getvalue().rstrip()


def percent(value: float) -> str:
    """Return a share as a percentage, with more digits below 0.05 %."""
    if value == 0:
        return "0 %"
    return f"{100 * value:.1f} %" if abs(value) >= 0.0005 else f"{100 * value:.2f} %"


def count(value: float) -> str:
    """Return a number with three significant digits and a unit prefix.

    >>> count(1_234_567), count(999), count(15_500_000_000)
    ('1.23 M', '999', '15.5 G')
    """
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def dims(shape: tuple[int, ...]) -> str:
    """Return a shape as 16×14×14."""
    return "×".join(map(str, shape))


def threshold_score(threshold: float) -> str:
    """Return a threshold, which is a logit, as the lowest score that passes.

    >>> threshold_score(0.0), threshold_score(-7.5), threshold_score(float("-inf"))
    ('0.5', '0.000553', '0')
    """
    odds = exp(min(threshold, 700.0))
    return f"{odds / (1 + odds):.3g}"
