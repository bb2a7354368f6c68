"""Results as tables for a terminal of 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from penstock.gating.tables import count, percent, table_of

if TYPE_CHECKING:
    from penstock.evaluation.evaluate import Evaluation


def evaluation_tables(evaluation: Evaluation) -> list[RenderableType]:
    """Return all that an evaluation holds: the whole, its costs, its gates, its classes."""
    return [_summary(evaluation), _costs(evaluation), *_gates(evaluation), _classes(evaluation)]


def _summary(e: Evaluation) -> Table:
    table = table_of("metric", ">value", "meaning", title=f"{e.samples:,} samples, {e.positives:,} of interest")
    rows = [
        ("accuracy", e.accuracy, "with gates: what is stopped counts as background"),
        ("accuracy, gates open", e.accuracy_open, "the same network without stopping"),
        ("early stopping", e.early_stopping, "negatives that are stopped"),
        ("activation sparsity", e.activation_sparsity, "values at the cuts that are not sent"),
        ("positive lost rate", e.positive_lost_rate, "positives that are stopped"),
        ("negative pass-through", e.negative_pass_through_rate, "negatives that reach the end"),
        ("negative correction", e.negative_correction_rate, "negatives stopped that the rest would mistake"),
        ("stop rate", e.stop_rate, "samples that are stopped"),
    ]
    for name, value, meaning in rows:
        table.add_row(name, percent(value), meaning)
    if e.guarantee:
        table.caption = f"Guarantee: {e.guarantee}"
        table.caption_justify = "left"
    return table


def _costs(e: Evaluation) -> Table:
    table = table_of("stream", ">MACs", ">of plain", ">bytes sent", ">of plain", title="Mean cost of a sample")
    for cost in e.costs:
        ratio = cost.negatives_per_positive
        stream = "as in the data" if ratio is None else f"1 : {ratio:g}"
        macs_share = percent(cost.macs / cost.plain_macs) if cost.plain_macs else ""
        plain = cost.plain_payload_bytes
        sent = percent(cost.payload_bytes / plain) if plain else ""
        table.add_row(stream, count(cost.macs), macs_share, f"{cost.payload_bytes:,.0f}", sent)
    return table


def _gates(e: Evaluation) -> list[Table]:
    if not e.gates:
        return []
    rates = table_of(
        "gate after",
        ">AUC",
        ">reached",
        ">stopped",
        ">neg. pass",
        ">pos. lost",
        ">neg. corr.",
        title="Each gate alone, on all samples",
    )
    masks = table_of("gate after", ">values kept", ">dropped", title="Compression before each gate")
    for gate in e.gates:
        shares = [gate.negative_pass_through_rate, gate.positive_lost_rate, gate.negative_correction_rate]
        rates.add_row(
            gate.name,
            "" if gate.auc is None else f"{gate.auc:.4f}",
            percent(gate.reached),
            percent(gate.stopped),
            *("" if share is None else percent(share) for share in shares),
        )
        masks.add_row(gate.name, f"{gate.kept:,} of {gate.values:,}", percent(gate.dropout_rate))
    return [rates, masks]


def _classes(e: Evaluation) -> Table:
    table = table_of("class", ">samples", ">correct", ">gates open", ">stopped", title="Classes")
    for one in e.classes:
        table.add_row(one.name, f"{one.samples:,}", percent(one.recall), percent(one.recall_open), percent(one.stopped))
    return table
