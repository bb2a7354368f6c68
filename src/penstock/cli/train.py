"""`penstock train`: gate a network and train it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import torch
import typer
from rich.console import Console

from penstock.cli.arguments import DataName, ModelName, load_data, load_model, parse_amount, parse_cuts, parse_labels
from penstock.cli.show import AsJson, line, show
from penstock.datasets.loading import batches, class_counts
from penstock.errors import StorageError, require
from penstock.gating import checkpoint, surgery
from penstock.gating.layers.config import GateInput, Granularity, HeadKind, LayerConfig, MaskKind, Parts
from penstock.gating.objective import Objective
from penstock.gating.tables import network_table
from penstock.training.config import FitConfig, TrainOnly
from penstock.training.optimizer import OptimizerConfig

gate_option = partial(typer.Option, rich_help_panel="Gates")
layer_option = partial(typer.Option, rich_help_panel="Layer")
objective_option = partial(typer.Option, rich_help_panel="Objective")
training_option = partial(typer.Option, rich_help_panel="Training")


def train_command(
    model: ModelName,
    data: DataName,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write the gated network to.", metavar="FILE")],
    at: Annotated[
        str, gate_option(help="Depths (0.4 or 0.2,0.4,0.6), or a number of gates spread evenly (3).", metavar="DEPTHS")
    ] = "0.4",
    after: Annotated[
        list[str] | None,
        gate_option(help="Module to cut after, instead of --at; may be repeated.", metavar="NAME", show_default=False),
    ] = None,
    positives: Annotated[
        list[str] | None,
        gate_option(
            help="Classes that pass the gates, by number or name: 1,3. Repeat for one set per gate. Default: all but "
            "the background.",
            metavar="CLASSES",
            show_default=False,
        ),
    ] = None,
    background: Annotated[int, gate_option(help="Class of the negatives.", metavar="CLASS")] = 0,
    parts: Annotated[
        Parts, layer_option(help="both; gate: stop samples only; compression: mask features only.", metavar="PARTS")
    ] = "both",
    granularity: Annotated[
        Granularity,
        layer_option(
            help="What one mask dimension covers. element: one value, for inputs of a fixed size; channel: the first "
            "axis, for images and series; feature: the last axis, for tokens.",
            metavar="UNIT",
        ),
    ] = "element",
    mask: Annotated[
        MaskKind,
        layer_option(
            help="How masks become binary in training. thresholded: as in the paper; drawn: at random for each "
            "sample, which reduces overfitting (try it with --p 1 and more epochs).",
            metavar="MASK",
        ),
    ] = "thresholded",
    keep: Annotated[
        str | None,
        layer_option(
            help='How much may cross the cut, instead of --beta: 410 values, a share (0.05) or "1640 bytes".',
            metavar="AMOUNT",
            show_default=False,
        ),
    ] = None,
    bits: Annotated[
        str, layer_option(help="Bits of each value that crosses: 32, 8, 4; auto: 4 if --keep is in bytes.", metavar="N")
    ] = "auto",
    head: Annotated[
        HeadKind,
        layer_option(
            help="How a gate reads the features: linear, conv, conv2 (one or two convolutions), attention (for "
            "tokens); auto: what suits their shape.",
            metavar="HEAD",
        ),
    ] = "auto",
    gate_input: Annotated[
        GateInput,
        layer_option(
            help="What a linear head reads. kept: the mean of each kept channel or feature; all: every value of "
            "those, for inputs of a fixed size.",
            metavar="INPUT",
        ),
    ] = "kept",
    gate_width: Annotated[
        int | None,
        layer_option(
            help="Hidden units, or first channels, of a gate. Default: what suits the features.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    class_loss_weight: Annotated[
        float | None,
        layer_option(
            help="Weight of a class loss at the gate; 0: the paper's gate. Default: 0.3, with a linear head 0.",
            metavar="WEIGHT",
            show_default=False,
        ),
    ] = None,
    alpha: Annotated[
        float, objective_option(help="Weight of early stopping, from 0 to below 1.", metavar="WEIGHT")
    ] = 0.5,
    beta: Annotated[
        float, objective_option(help="Weight of compression, 0 or more; higher: fewer values sent.", metavar="WEIGHT")
    ] = 0.55,
    p: Annotated[float, objective_option(help="Exponent of the transmission cost L_p.", metavar="P")] = 2.0,
    balance: Annotated[
        bool, objective_option("--balance", help="Weight classes by their frequency: for 1:9 or 1:99.")
    ] = False,
    teacher: Annotated[
        str | None,
        training_option(
            help="A trained network to distil from, as package.module:function: best yours before it was gated.",
            metavar="MODEL",
            show_default=False,
        ),
    ] = None,
    train_only: Annotated[
        TrainOnly,
        training_option(
            help='all; "gates": what passes is answered exactly as before; "gates and masks".', metavar="WHAT"
        ),
    ] = "all",
    epochs: Annotated[int, training_option(help="Passes over the training data.", metavar="N")] = 20,
    batch_size: Annotated[int, training_option(help="Samples per step.", metavar="N")] = 256,
    rate: Annotated[
        float, training_option(help="Adam's learning rate; the peak, with a schedule.", metavar="RATE")
    ] = 0.01,
    schedule: Annotated[
        Literal["one-cycle", "rise-and-fall", "cosine", "constant"],
        training_option(help="one-cycle, rise-and-fall, cosine or constant.", metavar="NAME"),
    ] = "one-cycle",
    seed: Annotated[int, training_option(help="Random seed.", metavar="N")] = 0,
    folder: Annotated[
        Path | None,
        training_option(
            help="Folder for logs and checkpoints; run the same command again to resume.", metavar="FOLDER"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Gate a network, train it jointly with its gates and masks, and write it to a file.

    Example: `penstock train -m mine:network -d mine:data -o net.safetensors`
    """
    fit = require("penstock.training.fit", extra="train").fit  # Lightning takes a second to import

    if out.is_dir():
        raise StorageError(f"{out} is a folder; expected the name of a file.")
    splits = load_data(data)
    torch.manual_seed(seed)  # before the network draws its weights
    network, taught_by = load_model(model), None if teacher is None else load_model(teacher)
    example, _ = next(batches(splits["train"], batch_size=2))
    net = surgery.gate(
        network,
        example,
        after or parse_cuts(at),
        layer=LayerConfig(
            parts,
            granularity,
            mask,
            keep=parse_amount(keep),
            bits=int(bits) if bits.isdecimal() else bits,  # type: ignore[arg-type]
            head=head,
            gate_width=gate_width,
            gate_input=gate_input,
            class_loss_weight=class_loss_weight,
        ),
        positives=_positives(positives, splits.get("class_names")),
        background=background,
    )
    net.image_config = splits.get("image_config")
    objective = Objective(
        alpha=alpha, beta=beta, p=p, class_counts=class_counts(splits["train"], net.spec.classes) if balance else None
    )
    if not as_json:
        Console().print(network_table(net))
    history = fit(
        net,
        splits["train"],
        splits.get("validation"),
        objective=objective,
        config=FitConfig(
            optimizer=OptimizerConfig(rate, schedule),
            epochs=epochs,
            batch_size=batch_size,
            folder=folder,
            seed=seed,
            progress=not as_json,
        ),
        teacher=taught_by,
        train_only=train_only,
    )
    checkpoint.save(net, out)
    show(
        as_json,
        {"out": str(out), "epochs": history.epochs, "warnings": history.warnings},
        network_table(net),
        line(f"Written: {out}"),
    )


def _positives(positives: list[str] | None, names: Sequence[str] | None) -> list[int] | list[list[int]] | None:
    """Return Ω as `gate` takes it: one set for all gates, or one per gate."""
    if not positives:
        return None
    labels = parse_labels(positives, names)
    return labels[0] if len(labels) == 1 else labels
