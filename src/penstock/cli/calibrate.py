"""`penstock calibrate`: choose gate thresholds that keep a guarantee."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import DataName, ModelName, NetworkFile, load_data, load_model, select_split
from penstock.cli.show import AsJson, show
from penstock.evaluation.calibrate import calibrate
from penstock.gating import checkpoint
from penstock.gating.tables import network_table


def calibrate_command(
    network: NetworkFile,
    model: ModelName,
    data: DataName,
    split: Annotated[
        str, typer.Option(help="Split to calibrate on; not the one trained on.", metavar="SPLIT")
    ] = "validation",
    max_positive_loss: Annotated[
        float, typer.Option(help="Share of the positives that the gates may stop.", metavar="SHARE")
    ] = 0.01,
    confidence: Annotated[float, typer.Option(help="Confidence of the guarantee.", metavar="SHARE")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; default: the network's own.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose gate thresholds that lose at most a given share of the positives, with a given confidence.

    Example: `penstock calibrate net.safetensors -m mine:network -d mine:data`
    """
    net = checkpoint.load(network, load_model(model))
    guarantee = calibrate(
        net,
        select_split(load_data(data), split),
        max_positive_loss=max_positive_loss,
        confidence=confidence,
    )
    checkpoint.save(net, out or network)
    show(as_json, asdict(guarantee), network_table(net), f"Guarantee: {guarantee}")
