"""`penstock evaluate`: measure a gated network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.arguments import DataName, ModelName, NetworkFile, load_data, load_model, select_split
from penstock.cli.show import AsJson, line, show
from penstock.evaluation.evaluate import evaluate
from penstock.evaluation.tables import evaluation_tables
from penstock.gating import checkpoint


def evaluate_command(
    network: NetworkFile,
    model: ModelName,
    data: DataName,
    split: Annotated[str, typer.Option(help="Split to evaluate on.", metavar="SPLIT")] = "test",
    ratio: Annotated[
        list[float] | None,
        typer.Option(
            help="Negatives per positive, for the costs; may be repeated. Default: 9 and 99.", metavar="RATIO"
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Write ROC, score and mask plots to this folder.", metavar="FOLDER")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the evaluation as JSON.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy, early stopping, sparsity, lost positives, MACs and bytes per sample.

    Example: `penstock evaluate net.safetensors -m mine:network -d mine:data`
    """
    net = checkpoint.load(network, load_model(model))
    splits = load_data(data)
    result = evaluate(
        net,
        select_split(splits, split),
        ratios=ratio or (9, 99),
        class_names=splits.get("class_names"),
    )
    if out is not None:
        result.save(out)
    written = [] if plots is None else result.plot(plots, net)
    show(as_json, result.to_json(), *evaluation_tables(result), *(line(f"Written: {path}") for path in written))
