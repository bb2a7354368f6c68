"""The commands of the paper's reproduction: run experiments, sweep, make the page of results."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.arguments import alpha_and_beta, folder_of, one_of
from penstock.cli.show import AsJson, line, show

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
Work = Annotated[Path, typer.Option(help="For the weights of runs that are under way, or not tested yet.")]
Accelerator = Annotated[str, typer.Option(help="What to train on: cpu, gpu, or auto for the best there is.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that read pictures from files while others train.")]


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="table1, figure-position, ...; or all. `python -m reproduction run list` shows them.",
            show_default=False,
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
    accelerator: Accelerator = "cpu",
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Reproduce a table or a figure of the paper: train and measure all that it compares.

    A problem is a data set with its network: fashion-mnist, cifar10, speech-commands (ten words), wake-word (which
    reads the data of speech-commands), imagenet, hey-snips. All data is looked for before the first run.

    Finished runs are never computed again, and a broken one goes on where it stopped. Start the command several times
    to share the work among processes; machines share it through one folder for the results.

    Example: `python -m reproduction run table1 --data speech-commands=sets/speech_commands --profile lite`
    """
    from penstock.evaluation.tables import experiments_table, results_table
    from penstock.training.config import Hardware
    from reproduction.experiments.paper import EXPERIMENTS
    from reproduction.experiments.reproduce import reproduce as carry_out
    from reproduction.experiments.runner import Runner
    from reproduction.results.summary import summarise

    if "list" in what:
        shown = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        show(as_json, shown, experiments_table(list(EXPERIMENTS.values())))
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
    hardware = Hardware(accelerator=accelerator, workers=workers)
    runner = Runner(results, tuple(folder_of(text) for text in data or ()), work, hardware)
    found = carry_out(runner, runs, talk=not as_json)
    show(as_json, found, results_table(summarise(found)), line(f"Written: {results}"))


def sweep(
    problem: Annotated[str, typer.Argument(help="fashion-mnist, cifar10, speech-commands, ...", show_default=False)],
    trials: Annotated[int, typer.Option(help="How many trials the study shall have; those done before count.")] = 16,
    places: Annotated[bool, typer.Option("--places", help="Let layers stand anywhere, not at 40 % alone.")] = False,
    seeds: Annotated[int, typer.Option(help="A trial is the mean of so many seeds; 0: all of the profile's.")] = 0,
    most_layers: Annotated[int, typer.Option(help="Try up to so many layers; with --places.")] = 1,
    first: Annotated[
        list[str] | None,
        typer.Option(help="Try this α,β before others, such as 0.6,0.15; may be repeated. Default: the paper's two."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where the study is: a file ending in .log, or a database such as sqlite:///sweep.db; many machines "
            "can join one on a server, if they share the folder of the results. Default: sweep.log in the results."
        ),
    ] = None,
    data: ProblemData = None,
    profile: Profile = "lite",
    results: Results = Path("results"),
    work: Work = Path("runs"),
    accelerator: Accelerator = "cpu",
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Sweep over α and β on validation data, and choose the best trade-off and the best accuracy by written rules.

    The trade-off: most early stopping at equal loss, with a sparsity of at least 93 % and an accuracy at most 0.1
    points below the plain network's, by a margin of one standard error. The accuracy: the most accurate, with an early
    stopping of at least 82 % and a sparsity of at least 40 %. Where nothing qualifies, what misses by least.

    Each trial is the mean of a few runs, kept like any other. The choice lies beside the results, where `penstock
    reproduce` finds it; a sweep over places and layers, too, prints its front and chooses nothing. Start the command
    several times to share the work.

    Example: `python -m reproduction sweep cifar10 --trials 16`
    """
    from penstock.evaluation.tables import trials_table
    from penstock.runtime.files import make_folder
    from penstock.training.config import Hardware
    from reproduction.experiments.paper import PAPERS
    from reproduction.experiments.runner import Runner
    from reproduction.sweep import sweep as study
    from reproduction.sweep.front import pareto

    papers = one_of("the problem", problem, PAPERS)
    begin = [alpha_and_beta(text) for text in first or ()] or [papers.trade_off, papers.accuracy]
    hardware = Hardware(accelerator=accelerator, workers=workers)
    runner = Runner(results, tuple(folder_of(text) for text in data or ()), work, hardware)
    make_folder(results)
    console = Console(stderr=True, quiet=as_json)
    search = study.Search(problem, profile, study.Space(places, most_layers), tuple(range(seeds)))
    found = study.sweep(
        runner,
        search,
        trials=trials,
        storage=storage or str(results / "sweep.log"),
        first=begin,
        seen=lambda trial, done: console.print(line(f"{done} of {trials}  {trial}"), soft_wrap=True),
    )
    front = trials_table(pareto(found))
    if places:
        show(as_json, [asdict(trial) for trial in found], front)
        return
    written = study.choose(runner, search, found)
    show(as_json, json.loads(written.read_text()), front, line(f"Written: {written}"))


def page(
    results: Annotated[Path, typer.Option(help="The folder that python -m reproduction run wrote to.")] = Path(
        "results"
    ),
    profile: Annotated[str, typer.Option(help="lite or paper: the runs of which budget.")] = "lite",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page; its pictures go into the folder of that name beside it.")
    ] = Path("docs/results.md"),
    as_json: AsJson = False,
) -> None:
    """Make the page of the paper's reproduction out of finished runs: claims, tables and figures.

    It trains nothing, and can be called at any time: what has not been computed yet is listed
    as not run yet. The claims go into claims.json among the results too, each with its value, what it is to reach, and
    whether it holds.

    Example: `python -m reproduction results --results results --out docs/results.md`
    """
    from penstock.evaluation.tables import claims_table
    from reproduction.page.page import count_of, write_page
    from reproduction.results.claims import claims

    written = write_page(results, profile, out)
    found = claims(results, profile)
    plain = {"claims": [claim.to_json() for claim in found], "written": [str(path) for path in written]}
    show(as_json, plain, claims_table(found), count_of(found), *(line(f"Written: {path}") for path in written))
