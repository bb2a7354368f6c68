"""An exported bundle as tables for a terminal of 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType

from penstock.gating.tables import count, dims, table_of, threshold_score

if TYPE_CHECKING:
    from penstock.export.bundling import Exported


def export_tables(exported: Exported) -> list[RenderableType]:
    """Return a row for each exported stage, and the decisions before and after."""
    manifest = exported.bundle.manifest
    columns = ("stage", ">MACs", ">file", ">crosses", ">bytes", ">from score", ">error")
    table = table_of(*columns, title=f"Bundle of {manifest.model}, {manifest.precision}, {manifest.id[:16]}")
    for stage, error in zip(manifest.stages, exported.errors, strict=True):
        gives, is_last = stage.output, stage is manifest.stages[-1]
        table.add_row(
            stage.file,
            count(stage.macs),
            f"{stage.file_bytes:,}",
            "" if is_last else f"{dims(gives.shape)} {gives.dtype}",
            "" if is_last else f"{gives.payload_bytes:,}",
            "" if stage.gate is None else threshold_score(stage.gate.threshold),
            f"{error:.1e}",
        )
    table.caption = "MACs: of the exported stage, without the channels that its mask drops\n"
    table.caption += "error: of the stage in float32, relative to PyTorch's largest output"
    for number, floats in enumerate(exported.floats, start=1):
        if floats:
            listed = ", ".join(f"{name} {times}" if times > 1 else name for name, times in sorted(floats.items()))
            table.caption += f"\nleft in float32, stage {number}: {listed}"
    if manifest.guarantee is not None:
        table.caption += f"\nguarantee: at most {manifest.guarantee.bound:.2%} of the positives are lost"
    table.caption_justify = "left"
    if exported.before is None or exported.after is None:
        return [table]
    table_of_decisions = table_of("decisions", ">PyTorch", ">bundle", title="On the data given")
    for name in ("accuracy", "early_stopping", "positive_lost_rate"):
        values = (getattr(decisions, name) for decisions in (exported.before, exported.after))
        table_of_decisions.add_row(name.replace("_", " "), *(f"{100 * value:.2f} %" for value in values))
    return [table, table_of_decisions]
