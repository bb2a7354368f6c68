"""`penstock export`: write a bundle for devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import DataName, ModelName, NetworkFile, load_data, load_model, select_split
from penstock.cli.show import AsJson, line, show
from penstock.datasets.loading import batches
from penstock.export import Float32, Int8, export_bundle
from penstock.export.exporters import EXPORTERS, load_exporter
from penstock.export.precision import Target
from penstock.export.tables import export_tables
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
    target: Annotated[
        Target | None,
        typer.Option(
            help="Processor that an int8 bundle runs on. Default: one like that of this machine.",
            show_default=False,
            rich_help_panel="Precision",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="How much accuracy, early stopping and positives may get worse, as a share. Default: 0.005 in int8, "
            "else 0.001.",
            metavar="SHARE",
            show_default=False,
            rich_help_panel="Precision",
        ),
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Send float16 values between stages.", rich_help_panel="Precision")
    ] = False,
    file_format: Annotated[
        str,
        typer.Option("--format", help=f"File format of the stages: {', '.join(EXPORTERS)}.", metavar="FORMAT"),
    ] = "onnx",
    as_json: AsJson = False,
) -> None:
    """Write a bundle for devices: one static graph per stage, and a manifest.

    Example: `penstock export net.safetensors -m mine:network -d mine:data -o bundle/`

    Before anything is written, each stage and the decisions on the data are compared with PyTorch.
    """
    if target is not None and not int8:
        raise typer.BadParameter("--target needs --int8: float32 bundles run the same on all processors.")
    if int8 and half:
        raise typer.BadParameter("--int8 and --half exclude each other: an int8 bundle sends 8-bit values.")
    load_exporter(file_format)  # before the work, not after it
    splits = load_data(data)
    part = select_split(splits, split)
    example, _ = next(batches(part, batch_size=16))
    precision = (
        Int8(splits["train"], held_out=part, format=file_format, target=target)
        if int8
        else Float32("float16" if half else "float32", format=file_format)
    )
    if tolerance is not None:
        precision = replace(precision, tolerance=tolerance)
    net = checkpoint.load(network, load_model(model))
    net.image_config = net.image_config or splits.get("image_config")
    exported = export_bundle(
        net,
        example,
        out,
        precision=precision,
        check_on=select_split(splits, "test") if int8 else part,
        labels=splits.get("class_names"),
    )
    show(as_json, exported.to_json(), *export_tables(exported), line(f"Written: {out}"))
