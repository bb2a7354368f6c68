"""The commands of the reproduction: run experiments, sweep α and β, write the results page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from penstock.errors import DataError

TaskData = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TASK=FOLDER",
        help="Folder of a task's data; may be repeated. Default: the folder where `data` finds it.",
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        help="lite: minutes per run on one core, 3 seeds (ImageNet takes longer). paper: the paper's budget, 200 "
        "epochs and 10 seeds."
    ),
]
Results = Annotated[Path, typer.Option(help="Folder of result files, one JSON file per finished run.")]
Work = Annotated[Path, typer.Option(help="Folder for checkpoints of runs that are not finished.")]
Accelerator = Annotated[str, typer.Option(help="Device to train on: cpu, gpu or auto.")]
Workers = Annotated[int, typer.Option(min=0, help="Data loading processes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


def run(
    experiments: Annotated[
        list[str],
        typer.Argument(
            help="Names such as table1 or figure-position; `all` for every experiment, `list` to list them.",
            show_default=False,
        ),
    ],
    data: TaskData = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK",
            help="Run on this task instead of the experiment's own; may be repeated. With `all`: skip the others.",
        ),
    ] = None,
    profile: Profile = "lite",
    results: Results = Path("results"),
    work: Work = Path("runs"),
    accelerator: Accelerator = "cpu",
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Reproduce tables and figures of the paper: train and measure every method they compare.

    A task is a data set with its network: fashion-mnist, cifar10, speech-commands (ten words), wake-word (uses the data
    of speech-commands), imagenet, hey-snips. All data is loaded once before the first run, so that missing data is
    reported at once.

    Finished runs are never computed again, and an interrupted run resumes from its last epoch. To share the work, start
    the command in several processes, or on several machines with a common results folder.

    Examples:
    `python -m reproduction run list`

    `python -m reproduction run table1 --only cifar10`

    `python -m reproduction run all --data speech-commands=data/speech_commands`
    """
    from penstock.training.config import Hardware
    from reproduction.experiments.execute import execute_runs
    from reproduction.experiments.paper_experiments import EXPERIMENTS
    from reproduction.experiments.runner import Runner
    from reproduction.results.summary import summarise
    from reproduction.tables import experiments_table, results_table

    if "list" in experiments:
        titles = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        _show(as_json, titles, experiments_table(list(EXPERIMENTS.values())))
        return
    everything = experiments == ["all"]
    names = list(EXPERIMENTS) if everything else experiments
    selected = [_lookup("experiment", name, EXPERIMENTS) for name in names]
    runs = [
        run
        for experiment in selected
        for run in experiment.runs(profile, only, results=results)
        if run.task in experiment.tasks or not everything
    ]
    hardware = Hardware(accelerator=accelerator, workers=workers)
    runner = Runner(results, _data_folders(data), work, hardware)
    found = execute_runs(runner, runs, progress=not as_json)
    _show(as_json, found, results_table(summarise(found)), Text(f"Written: {results}"))


def sweep(
    task: Annotated[str, typer.Argument(help="fashion-mnist, cifar10, speech-commands, ...", show_default=False)],
    trials: Annotated[int, typer.Option(help="Total number of trials in the study, earlier ones included.")] = 16,
    positions: Annotated[
        bool, typer.Option("--positions", help="Vary the position of the layers too, instead of 40 % depth.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Seeds per trial; 0 for all of the profile's.")] = 0,
    max_layers: Annotated[int, typer.Option(help="Largest number of layers; more than 1 needs --positions.")] = 1,
    first: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ALPHA,BETA",
            help="α and β to try first, such as 0.6,0.15; may be repeated. Default: the paper's two settings.",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Optuna storage: a file ending in .log, or a database URL such as sqlite:///sweep.db. Machines that "
            "share a study share the results folder too. Default: sweep.log in the results folder."
        ),
    ] = None,
    data: TaskData = None,
    profile: Profile = "lite",
    results: Results = Path("results"),
    work: Work = Path("runs"),
    accelerator: Accelerator = "cpu",
    workers: Workers = 0,
    as_json: AsJson = False,
) -> None:
    """Sweep α and β on validation data and select the settings of table 1 by fixed rules.

    Best trade-off: the highest early stopping at equal positive loss, with at least 93 % sparsity and an accuracy at
    most 0.1 points below the plain network's, plus a margin of one standard error. Best accuracy: the highest accuracy,
    with at least 82 % early stopping and 40 % sparsity. If no trial qualifies, the nearest one is selected.

    A trial is the mean of one run per seed; its runs are kept like any others. The selection is written to
    chosen.json in the results folder, where `run` and `results` read it. With --positions the Pareto front is printed
    and nothing is selected. Start the command several times to share the work.

    Example:
    `python -m reproduction sweep cifar10 --trials 16`
    """
    from penstock.runtime.files import make_folder
    from penstock.training.config import Hardware
    from reproduction.experiments.paper_experiments import PAPER_WEIGHTS
    from reproduction.experiments.runner import Runner
    from reproduction.sweep import sweep as study
    from reproduction.sweep.pareto import pareto_front
    from reproduction.tables import trials_table

    paper = _lookup("task", task, PAPER_WEIGHTS)
    initial = [parse_alpha_beta(text) for text in first or ()] or [paper.trade_off, paper.accuracy]
    config = study.SweepConfig(task, profile, study.SearchSpace(positions, max_layers), tuple(range(seeds)))
    runner = Runner(results, _data_folders(data), work, Hardware(accelerator=accelerator, workers=workers))
    make_folder(results)
    console = Console(stderr=True, quiet=as_json)
    found = study.sweep(
        runner,
        config,
        trials=trials,
        storage=storage or str(results / "sweep.log"),
        initial=initial,
        on_trial=lambda trial, done: console.print(Text(f"{done} of {trials}  {trial}"), soft_wrap=True),
    )
    front = trials_table(pareto_front(found))
    if positions:
        _show(as_json, [asdict(trial) for trial in found], front)
        return
    written = study.select_weights(runner, config, found)
    _show(as_json, json.loads(written.read_text()), front, Text(f"Written: {written}"))


def results(
    results: Annotated[Path, typer.Option(help="Results folder of `python -m reproduction run`.")] = Path("results"),
    profile: Annotated[str, typer.Option(help="Show the runs of this profile: lite or paper.")] = "lite",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Markdown page to write; its figures go to the folder of that name.")
    ] = Path("docs/results.md"),
    as_json: AsJson = False,
) -> None:
    """Write the results page from finished runs: claims, tables and figures.

    Trains nothing and can be run at any time; what is missing is marked "not run yet". The claims are also written to
    claims.json in the results folder, each with its value, its target and whether it holds.

    Example:
    `python -m reproduction results --out docs/results.md`
    """
    from reproduction.page.page import claims_summary, write_page
    from reproduction.results.claims import claims
    from reproduction.tables import claims_table

    written = write_page(results, profile, out)
    found = claims(results, profile)
    as_dict = {"claims": [claim.to_json() for claim in found], "written": [str(path) for path in written]}
    paths = [Text(f"Written: {path}") for path in written]
    _show(as_json, as_dict, claims_table(found), claims_summary(found), *paths)


def parse_alpha_beta(text: str) -> tuple[float, float]:
    """Parse "α,β".

    >>> parse_alpha_beta("0.6,0.15")
    (0.6, 0.15)
    """
    try:
        alpha, beta = (float(part) for part in text.split(","))
    except ValueError as error:
        raise DataError(f"expected ALPHA,BETA such as 0.6,0.15, got {text!r}") from error
    return alpha, beta


def _data_folders(texts: list[str] | None) -> tuple[tuple[str, Path], ...]:
    """Parse options of the form task=folder."""
    pairs = [text.partition("=") for text in texts or ()]
    for task, equals, folder in pairs:
        if not (task and equals and folder):
            raise DataError(f"--data expects task=folder such as cifar10=data/cifar10, got {task + equals + folder!r}")
    return tuple((task, Path(folder)) for task, _, folder in pairs)


def _lookup(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    if name not in table:
        near = get_close_matches(name, table, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(table)}."
        raise DataError(f"unknown {kind} {name!r}: {hint}")
    return table[name]


def _show(as_json: bool, value: Any, *parts: Any) -> None:
    """Print ``value`` as JSON, or the parts as tables and lines."""
    if as_json:
        print(json.dumps(value, indent=1))
        return
    console = Console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))
