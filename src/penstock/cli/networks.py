"""The commands on a network of the user's: see where gates can stand, train, calibrate, evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from penstock.cli.arguments import data_of, example_of, labels_of, model_of, part_of, places_of
from penstock.cli.show import AsJson, line, show
from penstock.datasets.loading import batches, class_counts
from penstock.errors import StorageError
from penstock.evaluation import calibrate as calibration
from penstock.evaluation import evaluate as evaluation
from penstock.evaluation.tables import evaluation_tables, export_tables
from penstock.gating import checkpoint as storage
from penstock.gating import surgery
from penstock.gating.layers.config import GateInput, Granularity, LayerConfig, MaskKind, Parts
from penstock.gating.objective import Objective
from penstock.gating.tables import cuts_table, network_table
from penstock.training.config import OptimizerConfig

ModelName = Annotated[str, typer.Option("--model", "-m", help="The network, as package.module:function.")]
DataName = Annotated[str, typer.Option("--data", "-d", help="The data, as package.module:function.")]
Network = Annotated[Path, typer.Argument(help="A gated network, as written by penstock train.", show_default=False)]


def cuts(
    model: Annotated[str, typer.Argument(help="The network, as package.module:function.", show_default=False)],
    shape: Annotated[str, typer.Option(help="The shape of one sample, such as 1x28x28.", show_default=False)],
    dtype: Annotated[str, typer.Option(help="Its type; int64 for networks that take tokens.")] = "float32",
    as_json: AsJson = False,
) -> None:
    """List every place where a gate can stand: where exactly one tensor crosses.

    Example: `penstock cuts penstock.models.resnet:resnet8 --shape 1x28x28`
    """
    found = surgery.cuts(model_of(model), example_of(shape, dtype))
    show(as_json, [asdict(cut) for cut in found], cuts_table(found))


def train(
    model: ModelName,
    data: DataName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the gated network is written.")],
    at: Annotated[str, typer.Option(help="Depths, or a count spread evenly: 0.4 · 0.2,0.4,0.6 · 3")] = "0.4",
    after: Annotated[
        list[str] | None, typer.Option(help="A module's name, instead of --at; may be repeated.", show_default=False)
    ] = None,
    positives: Annotated[
        list[str] | None,
        typer.Option(
            help="The classes that gates let pass, by number or by name, such as 1,3; repeated, one for each gate. "
            "Default: all but the background.",
            show_default=False,
        ),
    ] = None,
    background: Annotated[int, typer.Option(help="The class of what is of no interest.", min=0)] = 0,
    parts: Annotated[
        Parts, typer.Option(help="gate: only stop samples; compression: only mask features; both: do both.")
    ] = "both",
    granularity: Annotated[
        Granularity,
        typer.Option(
            help="What one mask dimension covers. element: one value, for inputs of a fixed size; channel: the first "
            "axis, for images and series; feature: the last axis, for tokens."
        ),
    ] = "element",
    mask: Annotated[
        MaskKind,
        typer.Option(
            help="How masks become binary during training. drawn: at random for each sample, which reduces overfitting "
            "(try it with --p 1 and more epochs)."
        ),
    ] = "thresholded",
    gate_input: Annotated[
        GateInput,
        typer.Option(
            help="What a gate reads. kept: the mean of each kept channel or feature; all: every value of those, for "
            "inputs of a fixed size."
        ),
    ] = "kept",
    gate_width: Annotated[int, typer.Option(help="Hidden units of a gate.", min=1)] = 16,
    class_loss_weight: Annotated[
        float,
        typer.Option(
            help="The weight with which a gate also learns which class it sees, such as 0.3; 0: the paper's gate. For "
            "classes that are hard to tell apart."
        ),
    ] = 0.0,
    alpha: Annotated[
        float,
        typer.Option(
            help="The weight of early stopping, from 0 to below 1; higher: the gate learns more, the rest less."
        ),
    ] = 0.5,
    beta: Annotated[
        float, typer.Option(help="The weight of compression, 0 or more; higher: fewer values cross.")
    ] = 0.55,
    p: Annotated[float, typer.Option(help="The transmission cost is L_p; lower: weights of masks part sooner.")] = 2.0,
    balance: Annotated[bool, typer.Option("--balance", help="Let rare classes weigh more: for 1:9 or 1:99.")] = False,
    epochs: Annotated[int, typer.Option(help="How often the training data is gone through.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Samples a step.")] = 256,
    rate: Annotated[float, typer.Option(help="Adam's learning rate; its highest, with a schedule.")] = 0.01,
    schedule: Annotated[str, typer.Option(help="one-cycle, rise-and-fall, cosine or constant.")] = "one-cycle",
    seed: Annotated[int, typer.Option(help="The same seed gives the same network.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="For logs and checkpoints. A killed training goes on when started again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Gate a network, train it jointly with its gates and masks, and write it to a file.

    Example: `penstock train -m mine:network -d mine:data --at 0.4 --epochs 20 --folder runs/a -o net.safetensors`
    """
    from penstock.training.fit import fit

    layer = LayerConfig(parts, granularity, mask, gate_width, gate_input, class_loss_weight)
    if out.is_dir():
        raise StorageError(f"{out} is a folder: give the name of a file for the network.")
    sets = data_of(data)
    torch.manual_seed(seed)  # before the network draws its weights
    network = model_of(model)
    example, _ = next(batches(sets["train"], batch_size=2))
    net = surgery.gate(
        network,
        example,
        after or places_of(at),
        layer=layer,
        positives=_interests(positives, sets.get("class_names")),
        background=background,
    )
    objective = Objective(
        alpha=alpha, beta=beta, p=p, class_counts=class_counts(sets["train"], net.plan.classes) if balance else None
    )
    if not as_json:
        Console().print(network_table(net))
    history = fit(
        net,
        sets["train"],
        sets.get("validation"),
        objective=objective,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=OptimizerConfig(rate, schedule),  # type: ignore[arg-type]
        seed=seed,
        folder=folder,
        progress=not as_json,
    )
    storage.save(net, out)
    show(
        as_json,
        {"out": str(out), "epochs": history.epochs, "warnings": history.warnings},
        network_table(net),
        line(f"Written: {out}"),
    )


def calibrate(
    network: Network,
    model: ModelName,
    data: DataName,
    split: Annotated[
        str, typer.Option(help="The part of the data to calibrate on; not the one trained on.")
    ] = "validation",
    max_positive_loss: Annotated[float, typer.Option(help="The share of positives that may be lost.")] = 0.01,
    confidence: Annotated[float, typer.Option(help="How sure the promise is.")] = 0.95,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; default: the same file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Choose thresholds that keep a promise: with this confidence, no more positives are lost than allowed.

    Example: `penstock calibrate net.safetensors -m mine:network -d mine:data --max-positive-loss 0.01`
    """
    net = storage.load(network, model_of(model))
    guarantee = calibration.calibrate(
        net,
        part_of(data_of(data), split),
        max_positive_loss=max_positive_loss,
        confidence=confidence,
        progress=not as_json,
    )
    storage.save(net, out or network)
    show(as_json, asdict(guarantee), network_table(net), f"Promise: {guarantee}")


def evaluate(
    network: Network,
    model: ModelName,
    data: DataName,
    split: Annotated[str, typer.Option(help="The part of the data to evaluate on.")] = "test",
    ratio: Annotated[
        list[float] | None,
        typer.Option(help="Negatives for each positive, for the costs; may be repeated. Default: 9 and 99."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="A folder for ROC, score and mask plots.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the evaluation as JSON too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure everything: accuracy, early stopping, sparsity, positives lost, MACs and bytes a sample.

    Example: `penstock evaluate net.safetensors -m mine:network -d mine:data --plots plots/`
    """
    net = storage.load(network, model_of(model))
    sets = data_of(data)
    measured = evaluation.evaluate(
        net, part_of(sets, split), ratios=ratio or (9, 99), class_names=sets.get("class_names"), progress=not as_json
    )
    if out is not None:
        measured.save(out)
    written = [] if plots is None else measured.plot(plots, net)
    show(as_json, measured.to_json(), *evaluation_tables(measured), *(line(f"Written: {path}") for path in written))


def export(
    network: Network,
    model: ModelName,
    data: DataName,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the bundle; an older one is replaced.")],
    split: Annotated[
        str, typer.Option(help="The part of the data on which decisions are compared with PyTorch's.")
    ] = "validation",
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="Reckon in 8 bits. Ranges come from the training data; the promise is made anew on the part of "
            "--split, and the decisions are compared on the test part.",
        ),
    ] = False,
    half: Annotated[bool, typer.Option("--half", help="Let values cross links as 16-bit floats.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a bundle for devices: one static ONNX graph a stage, and a manifest.

    Each stage is compared with PyTorch before anything is written, and so is what the network decides on data.

    Example: `penstock export net.safetensors -m mine:network -d mine:data -o bundle/`
    """
    from penstock.export import Float32, Int8
    from penstock.export import export_bundle as to_bundle

    if int8 and half:
        raise typer.BadParameter("--int8 and --half exclude each other: in 8 bits, 8 bits cross.")
    sets = data_of(data)
    part = part_of(sets, split)
    example, _ = next(batches(part, batch_size=16))
    precision = Int8(sets["train"], held_out=part) if int8 else Float32("float16" if half else "float32")
    exported = to_bundle(
        storage.load(network, model_of(model)),
        example,
        out,
        precision=precision,
        check_on=part_of(sets, "test") if int8 else part,
        labels=sets.get("class_names"),
        progress=not as_json,
    )
    show(as_json, exported.to_json(), *export_tables(exported), line(f"Written: {out}"))


def _interests(positives: list[str] | None, names: Sequence[str] | None) -> list[int] | list[list[int]] | None:
    """Return Ω as `gate` takes it: one for all gates, or one for each."""
    if not positives:
        return None
    labels = labels_of(positives, names)
    return labels[0] if len(labels) == 1 else labels
