"""`penstock export`: write a bundle for devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import DataName, ModelName, NetworkFile, load_data, load_model, select_split
from penstock.cli.show import AsJson, line, show
from penstock.datasets.loading import batches
from penstock.errors import require
from penstock.evaluation.tables import export_tables
from penstock.gating import checkpoint


def export_command(
    network: NetworkFile,
    model: ModelName,
    data: DataName,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Bundle folder; an older bundle is replaced.", metavar="FOLDER")
    ],
    split: Annotated[
        str, typer.Option(help="Split on which decisions are compared with PyTorch.", metavar="SPLIT")
    ] = "validation",
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="Quantise to 8 bits: ranges from the training data, thresholds recalibrated on --split, decisions "
            "compared on the test split.",
            rich_help_panel="Precision",
        ),
    ] = False,
    half: Annotated[
        bool, typer.Option("--half", help="Send float16 values between stages.", rich_help_panel="Precision")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a bundle for devices: one static ONNX graph per stage, and a manifest.

    Example: `penstock export net.safetensors -m mine:network -d mine:data -o bundle/`

    Before anything is written, each stage and the decisions on the data are compared with PyTorch.
    """
    export = require("penstock.export", extra="train,export")

    if int8 and half:
        raise typer.BadParameter("--int8 and --half exclude each other: an int8 bundle sends 8-bit values.")
    splits = load_data(data)
    part = select_split(splits, split)
    example, _ = next(batches(part, batch_size=16))
    exported = export.export_bundle(
        checkpoint.load(network, load_model(model)),
        example,
        out,
        precision=(
            export.Int8(splits["train"], held_out=part) if int8 else export.Float32("float16" if half else "float32")
        ),
        check_on=select_split(splits, "test") if int8 else part,
        labels=splits.get("class_names"),
    )
    show(as_json, exported.to_json(), *export_tables(exported), line(f"Written: {out}"))
