"""The command `penstock`: each command parses, calls one function, prints.

Exit codes: 0 done · 1 Penstock refused (the reason is on standard error) · 2 wrong usage · 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

try:
    import torch
    import typer
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as missing:
    sys.exit(f"error: the command penstock needs {missing.name!r}: pip install 'penstock[train]'")

from penstock import calibration, evaluation, storage, surgery, training
from penstock.arguments import data_of, example_of, folder_of, model_of, one_of, part_of, places_of
from penstock.data import catalogue
from penstock.data.batches import batches, class_counts
from penstock.errors import PenstockError
from penstock.layers import Both, CompressionOnly, GateOnly, PerChannel, PerElement, PerFeature
from penstock.objective import Objective
from penstock.recipe import Adam
from penstock.report.tables import cuts_table, evaluation_tables, network_table, table_of

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Turn any PyTorch network into a gated, always-on network.\n\n"
    "A **model** is given as `package.module:function`, a function without arguments that returns a torch module. "
    "**Data** is given the same way: a function that returns an object or dict with `train`, `validation` and `test`, "
    "each a Dataset, a DataLoader or a pair of tensors (x, y), and perhaps `class_names`; label 0 is the background. "
    "A written network holds weights and no code, so commands that read it take its model again. Modules are looked "
    "for in the working directory too.\n\nThe usual way: `penstock cuts` to see where gates can stand, `penstock "
    "train`, `penstock calibrate`, `penstock evaluate`. `penstock demo` shows it all on real data.",
)

data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, fetch and check the data sets that Penstock knows.\n\n"
    "`penstock data list` says which are on this machine. `penstock data fetch cifar10` downloads one into the cache "
    "folder, which is `$PENSTOCK_DATA`, or else the platform's own. Loaders never download: they look there, and where "
    "a system or Python package puts its files, or in the folder they are given.",
)
app.add_typer(data_app, name="data")

ModelName = Annotated[str, typer.Option("--model", "-m", help="The network, as package.module:function.")]
DataName = Annotated[str, typer.Option("--data", "-d", help="The data, as package.module:function.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing else.")]
DataSet = Annotated[str, typer.Argument(help="Its name, as in penstock data list.", show_default=False)]
ProblemData = Annotated[
    list[str] | None,
    typer.Option(help="A problem's data, as problem=folder; may be repeated. Default: where it is found."),
]
Profile = Annotated[
    str,
    typer.Option(
        help="lite: a minute or some a run on one core (ImageNet stays long). paper: the paper's budget, 200 epochs "
        "and 10 seeds."
    ),
]
Results = Annotated[Path, typer.Option(help="Where each finished run is kept as one JSON file.")]
Work = Annotated[Path, typer.Option(help="For the checkpoints of runs under way.")]
Network = Annotated[Path, typer.Argument(help="A gated network, as written by penstock train.", show_default=False)]

HALVES = {"both": Both, "gate": GateOnly, "compression": CompressionOnly}
GRANULARITIES = {"element": PerElement, "channel": PerChannel, "feature": PerFeature}


@app.command()
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
    _print(as_json, [asdict(cut) for cut in found], cuts_table(found))


@app.command()
def train(
    model: ModelName,
    data: DataName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the gated network is written.")],
    at: Annotated[str, typer.Option(help="Depths, or a count spread evenly: 0.4 · 0.2,0.4,0.6 · 3")] = "0.4",
    after: Annotated[
        list[str] | None, typer.Option(help="A module's name, instead of --at; may be repeated.", show_default=False)
    ] = None,
    halves: Annotated[
        str, typer.Option(help="What a layer has: both; gate, which only stops; compression, which only thins.")
    ] = "both",
    over: Annotated[
        str,
        typer.Option(
            help="What a mask dimension is: element, the finest, for inputs of one size; channel, for images and "
            "series; feature, the last axis, for tokens. The last two allow any length."
        ),
    ] = "element",
    alpha: Annotated[
        float,
        typer.Option(
            help="The weight of early stopping, from 0 to below 1; higher: the gate learns more, the rest less."
        ),
    ] = 0.5,
    beta: Annotated[
        float, typer.Option(help="The weight of compression, 0 or more; higher: fewer values cross.")
    ] = 0.55,
    balance: Annotated[bool, typer.Option("--balance", help="Let rare classes weigh more: for 1:9 or 1:99.")] = False,
    epochs: Annotated[int, typer.Option(help="How often the training data is gone through.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Samples a step.")] = 256,
    rate: Annotated[float, typer.Option(help="Adam's learning rate; its highest, with a schedule.")] = 0.01,
    schedule: Annotated[str, typer.Option(help="one-cycle, cosine or constant.")] = "one-cycle",
    seed: Annotated[int, typer.Option(help="The same seed gives the same network.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="For logs and checkpoints. A killed training goes on when started again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Gate a network, train it jointly with its gates and masks, and write it to a file.

    Example: `penstock train -m mine:network -d mine:data --at 0.4 --epochs 20 --folder runs/a -o net.safetensors`
    """
    sets = data_of(data)
    torch.manual_seed(seed)  # before the network draws its weights
    network = model_of(model)
    example, _ = next(batches(sets["train"], batch_size=2))
    net = surgery.gate(
        network,
        example,
        after or places_of(at),
        halves=one_of("--halves", halves, HALVES)(one_of("--over", over, GRANULARITIES)()),
    )
    objective = Objective(
        alpha=alpha, beta=beta, class_counts=class_counts(sets["train"], net.plan.classes) if balance else None
    )
    if not as_json:
        Console().print(network_table(net))
    history = training.fit(
        net,
        sets["train"],
        sets.get("validation"),
        objective=objective,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=Adam(rate, schedule),  # type: ignore[arg-type]
        seed=seed,
        folder=folder,
        progress=not as_json,
    )
    storage.save(net, out)
    _print(
        as_json,
        {"out": str(out), "epochs": history.epochs, "warnings": history.warnings},
        network_table(net),
        _line(f"Written: {out}"),
    )


@app.command()
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
    certificate = calibration.calibrate(
        net,
        part_of(data_of(data), split),
        max_positive_loss=max_positive_loss,
        confidence=confidence,
        progress=not as_json,
    )
    storage.save(net, out or network)
    _print(as_json, asdict(certificate), network_table(net), f"Promise: {certificate}")


@app.command()
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
    _print(as_json, measured.to_json(), *evaluation_tables(measured), *(_line(f"Written: {path}") for path in written))


@app.command()
def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="table1, figure-position, ...; or all. `penstock reproduce list` shows them.", show_default=False
        ),
    ],
    data: ProblemData = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run on this problem instead of the experiment's own; may be repeated. With all: leave out others."
        ),
    ] = None,
    profile: Profile = "lite",
    results: Results = Path("results"),
    work: Work = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or a figure of the paper: train and measure all that it compares.

    A problem is a data set with its network: fashion-mnist, cifar10, speech-commands (ten words), wake-word (which
    reads the data of speech-commands), imagenet, hey-snips. All data is looked for before the first run.

    Finished runs are never computed again, and a broken one goes on where it stopped. Start the command several times
    to share the work among processes.

    Example: `penstock reproduce table1 --data speech-commands=sets/speech_commands --profile lite`
    """
    from penstock.experiments.paper import EXPERIMENTS
    from penstock.experiments.reproduce import reproduce as carry_out
    from penstock.experiments.runs import Laboratory
    from penstock.experiments.summary import summarise
    from penstock.report.tables import experiments_table, results_table

    if "list" in what:
        shown = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        _print(as_json, shown, experiments_table(list(EXPERIMENTS.values())))
        return
    everything = what == ["all"]
    chosen = (
        list(EXPERIMENTS.values()) if everything else [one_of("the experiment", name, EXPERIMENTS) for name in what]
    )
    runs = [
        run
        for experiment in chosen
        for run in experiment.runs(profile, only, results=results)
        if run.problem in experiment.problems or not everything
    ]
    laboratory = Laboratory(results, tuple(folder_of(text) for text in data or ()), work)
    found = carry_out(laboratory, runs, talk=not as_json)
    _print(as_json, found, results_table(summarise(found)), _line(f"Written: {results}"))


@app.command()
def sweep(
    problem: Annotated[str, typer.Argument(help="fashion-mnist, cifar10, speech-commands, ...", show_default=False)],
    trials: Annotated[int, typer.Option(help="How many trials the study shall have; those done before count.")] = 16,
    places: Annotated[bool, typer.Option("--places", help="Let layers stand anywhere, not at 40 % alone.")] = False,
    most_layers: Annotated[int, typer.Option(help="Try up to so many layers; with --places.")] = 1,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where the study is: a file ending in .log, or a database such as sqlite:///sweep.db; many machines "
            "can join one on a server, and share the results folder. Default: sweep.log in the results."
        ),
    ] = None,
    data: ProblemData = None,
    profile: Profile = "lite",
    results: Results = Path("results"),
    work: Work = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Sweep over α and β on validation data, and choose the best trade-off and the best accuracy by written rules.

    The trade-off: most early stopping at equal loss, with a sparsity of at least 93 % and an accuracy at most 0.1
    points below the plain network's. The accuracy: the most accurate, with an early stopping of at least 82 % and a
    sparsity of at least 40 %. Where nothing qualifies, what misses by least.

    Each trial is one run, kept like any other. The choice lies beside the results, where `penstock reproduce` finds
    it; a sweep over places and layers, too, prints its front and chooses nothing. Start the command several times to
    share the work.

    Example: `penstock sweep cifar10 --trials 16`
    """
    from penstock.experiments import sweep as study
    from penstock.experiments.paper import PAPERS
    from penstock.experiments.runs import Laboratory
    from penstock.report.tables import trials_table

    one_of("the problem", problem, PAPERS)
    laboratory = Laboratory(results, tuple(folder_of(text) for text in data or ()), work)
    results.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, quiet=as_json)
    found = study.sweep(
        laboratory,
        problem,
        trials=trials,
        storage=storage or str(results / "sweep.log"),
        profile=profile,
        space=study.Space(places, most_layers),
        first=(PAPERS[problem].trade_off, PAPERS[problem].accuracy),
        seen=lambda trial, done: console.print(_line(f"{done} of {trials}  {trial}"), soft_wrap=True),
    )
    front = trials_table(study.pareto(found))
    if places:
        _print(as_json, [asdict(trial) for trial in found], front)
        return
    written = study.choose(laboratory, problem, found, profile=profile)
    _print(as_json, json.loads(written.read_text()), front, _line(f"Written: {written}"))


@app.command("results")
def page(
    results: Annotated[Path, typer.Option(help="The folder that penstock reproduce wrote to.")] = Path("results"),
    profile: Annotated[str, typer.Option(help="lite or paper: the runs of which budget.")] = "lite",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page; its pictures go into the folder of that name beside it.")
    ] = Path("docs/results.md"),
    as_json: AsJson = False,
) -> None:
    """Make the page of the paper's reproduction out of finished runs: claims, tables and figures.

    It trains nothing, and can be called at any time: what `penstock reproduce` has not computed yet is listed as not
    run yet. The claims go into claims.json among the results too, each with its value, what it is to reach, and
    whether it holds.

    Example: `penstock results --results results --out docs/results.md`
    """
    from penstock.experiments.claims import claims
    from penstock.report.paper.page import count_of, write_page
    from penstock.report.tables import claims_table

    written = write_page(results, profile, out)
    found = claims(results, profile)
    plain = {"claims": [claim.to_json() for claim in found], "written": [str(path) for path in written]}
    _print(as_json, plain, claims_table(found), count_of(found), *(_line(f"Written: {path}") for path in written))


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where plots and JSON go.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="The same seed gives the same networks.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Gate a real network on real data, in under three minutes: wrist movements of ten people.

    Trains the plain and the gated network with the same budget, calibrates, and compares them.
    """
    from penstock.demo import run

    result = run(folder, seed=seed, talk=not as_json)
    _print(as_json, result.to_json(), *result.tables())


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """Say of each data set what it is, where it is on this machine, and how to get it.

    Example: `penstock data list`
    """
    rows = catalogue.listing()
    _print(as_json, [asdict(row) for row in rows], *_data_tables(rows))


@data_app.command("fetch")
def data_fetch(name: DataSet, as_json: AsJson = False) -> None:
    """Download a data set into the cache, unless it is on this machine already.

    A download that was interrupted goes on where it ended, and only a file with the right checksum is kept.

    Example: `penstock data fetch cifar10`, or `PENSTOCK_DATA=/big/disk penstock data fetch speech-commands-v0.02`
    """
    found = catalogue.fetch(name, progress=not as_json)
    _print(as_json, {"name": name, "found": str(found.at)}, _line(f"{name}: {found.at}"))


@data_app.command("check")
def data_check(
    name: DataSet,
    folder: Annotated[
        Path | None, typer.Option(help="Where it is; default: wherever its loader finds it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """See whether a data set is whole: compare its checksums and lists, and count its samples.

    Example: `penstock data check cifar10`, or `penstock data check imagenet --folder /data/imagenet`
    """
    checked = catalogue.check(name, folder)
    counts = ", ".join(f"{part} {count:,}" for part, count in checked.samples.items())
    _print(as_json, asdict(checked), f"{name} is whole: {counts}.", _line(f"Read from {checked.found}"))


def main() -> None:
    """Run the command; turn refusals into one line and an exit code."""
    sys.path.insert(0, os.getcwd())
    try:
        app()
    except PenstockError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {type(error).__name__}: ", end="")
        Console(stderr=True, soft_wrap=True).print(str(error), markup=False, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _print(as_json: bool, value: Any, *parts: Any) -> None:
    if as_json:
        print(json.dumps(value, indent=1))
        return
    console = Console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def _line(text: str) -> Text:
    """Return a line with a path in it, which keeps its brackets and is not broken."""
    return Text(text)


def _data_tables(rows: list[catalogue.Row]) -> list[Table]:
    """Return what the data sets are, and below it where they are or how to get them."""
    what = table_of("name", "here", ">size", "licence", "what it is", title="Data sets")
    where = table_of("name", "where it is, or how to get it", title="Places")
    for row in rows:
        what.add_row(row.name, "no" if row.found is None else "yes", row.size, row.licence, row.description)
        where.add_row(row.name, Text(row.get if row.found is None else row.found))
    return [what, where]
