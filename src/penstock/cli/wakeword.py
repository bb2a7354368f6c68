"""`penstock wakeword train` and `penstock wakeword evaluate`: make a bundle that listens, and measure it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from penstock.cli.show import AsJson, line, show
from penstock.errors import DataError, require
from penstock.runtime.files import make_folder, write_atomically

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Train a wake word from a folder of clips, and evaluate it on streams.\n\n"
    "Example: `penstock wakeword train --word marvin --data clips/ -o marvin/`",
)

network_option = partial(typer.Option, rich_help_panel="Network and training")
threshold_option = partial(typer.Option, rich_help_panel="Gates and threshold")
stream_option = partial(typer.Option, rich_help_panel="Streams")

Clips = Annotated[
    Path,
    typer.Option(
        help="Speech Commands, or a folder with one sub-folder of clips per word: mono, 16 kHz, 16-bit, wav or flac. "
        "Noise recordings go in `_background_noise_`.",
        metavar="FOLDER",
    ),
]
Plot = Annotated[
    Path | None, typer.Option(help="Plot miss rate against false alarms to this PNG file.", metavar="FILE")
]
Subset = Annotated[bool, typer.Option("--subset", help="Accept Speech Commands with clips missing.")]


@app.command("train")
def wakeword_train(
    word: Annotated[str, typer.Option(help="Word to detect: a sub-folder of the data.", metavar="WORD")],
    data: Clips,
    out: Annotated[Path, typer.Option("--out", "-o", help="Bundle folder to write.", metavar="FOLDER")],
    plot: Plot = None,
    subset: Subset = False,
    as_json: AsJson = False,
    gates: Annotated[
        str,
        network_option(
            help="Blocks (1 to 8) after which gates are placed: the first stops non-speech, the second other words. "
            "none: no gates.",
            metavar="BLOCKS",
        ),
    ] = "2,5",
    width: Annotated[
        int, network_option(help="Channels of the first block; doubling it takes four times as long.", metavar="N")
    ] = 24,
    windows: Annotated[int, network_option(help="Training windows drawn from the clips.", metavar="N")] = 160_000,
    epochs: Annotated[int, network_option(help="Passes over the windows.", metavar="N")] = 4,
    rounds: Annotated[int, network_option(help="Rounds of hard-negative mining.", metavar="N")] = 1,
    seed: Annotated[int, network_option(help="Random seed.", metavar="N")] = 0,
    folder: Annotated[
        Path | None,
        network_option(help="Folder for logs and checkpoints; run the same command again to resume.", metavar="FOLDER"),
    ] = None,
    max_positive_loss: Annotated[
        float, threshold_option(help="Share of the detectable words that the gates may stop.", metavar="SHARE")
    ] = 0.003,
    max_false_alarms: Annotated[float, threshold_option(help="False alarms per hour allowed.", metavar="RATE")] = 0.5,
    max_miss_rate: Annotated[
        float,
        threshold_option(
            help="Share of words that may be missed. The threshold is set midway between both limits; if no "
            "threshold meets both, misses are minimised.",
            metavar="SHARE",
        ),
    ] = 0.05,
    confidence: Annotated[
        float,
        threshold_option(
            help="Confidence that both limits hold; 0 takes the counts as they are and needs few hours.",
            metavar="SHARE",
        ),
    ] = 0.95,
    hours: Annotated[
        float,
        threshold_option(help="Hours of validation streams; more hours allow a lower threshold.", metavar="HOURS"),
    ] = 13.0,
) -> None:
    """Train a network to detect a word in a stream; write a bundle for `penstock listen`.

    Example: `penstock wakeword train --word marvin --data clips/ -o marvin/`

    Training windows are cut from the clips at random offsets, with noise, gain and speed changes. The network learns
    to distinguish all words. Windows of other words that it mistakes for the word are mined from streams and trained
    on again. Gates and threshold are set on held-out clips.
    """
    from penstock.evaluation.plots import write_figure
    from penstock.wakeword.clips import load_clip_sets
    from penstock.wakeword.metrics import hours_needed
    from penstock.wakeword.report import det_figure, metrics_table
    from penstock.wakeword.thresholds import meets_miss_rate

    training = require("penstock.wakeword.training", extra="train,export,audio")
    config = training.WakeWordConfig(
        width=width,
        gate_blocks=_parse_blocks(gates),
        windows=windows,
        epochs=epochs,
        rounds=rounds,
        max_positive_loss=max_positive_loss,
        max_false_alarms_per_hour=max_false_alarms,
        alarm_confidence=confidence or None,
        max_miss_rate=max_miss_rate,
        validation_hours=hours,
        seed=seed,
    )
    for target in (out, *([plot.parent] if plot else [])):
        make_folder(target)  # fails before the training rather than after it
    start = time.perf_counter()
    trained = training.train_wakeword(
        load_clip_sets(data, word, subset=subset),
        word,
        config,
        folder=folder,
        progress=not as_json,
        log=_log_to_stderr(silent=as_json),
    )
    exported, metrics = trained.export(out), trained.chosen.metrics
    if plot is not None:
        figure = det_figure({word: trained.points}, chosen={word: trained.chosen}, per_hour=max_false_alarms)
        write_figure(figure, plot)
    missed = f"With 95 % confidence at most {metrics.miss_bound():.1%} of the words are missed in such streams"
    if not meets_miss_rate(metrics, max_miss_rate, config.alarm_confidence):
        missed += (
            f"; no threshold meets {max_miss_rate:.1%} within the allowed false alarms, and this one misses fewest"
        )
    show(
        as_json,
        {**trained.to_json(), "id": exported.bundle.manifest.id, "seconds": round(time.perf_counter() - start, 1)},
        metrics_table({word: metrics}, title="On streams of held-out clips"),
        f"With 95 % confidence at most {metrics.false_alarm_bound():.2g} false alarms per hour in such streams; to "
        f"claim {max_false_alarms:g} takes {hours_needed(max_false_alarms):.1f} h without any.",
        f"{missed}.",
        *(f"{share:.1%} of the windows reach stage {i}" for i, share in enumerate(trained.reached, start=1)),
        line(f"Written: {out}, in {_clock(start)}. Try: penstock listen {out} recording.wav"),
    )


@app.command("evaluate")
def wakeword_evaluate(
    bundle: Annotated[Path, typer.Argument(help="Bundle that penstock wakeword train wrote.", show_default=False)],
    data: Clips,
    against: Annotated[
        Path | None, typer.Option(help="Second bundle to compare on the same streams.", metavar="BUNDLE")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the results as JSON.", metavar="FILE")] = None,
    plot: Plot = None,
    subset: Subset = False,
    as_json: AsJson = False,
    split: Annotated[
        Literal["validation", "test"],
        stream_option(help="Whose voices: test, or validation while you still tune.", metavar="SPLIT"),
    ] = "test",
    hours: Annotated[float, stream_option(help="Hours of the long stream.", metavar="HOURS")] = 4.0,
    seed: Annotated[int, stream_option(help="Random seed of the streams.", metavar="N")] = 0,
    repeats: Annotated[int, stream_option(help="Repetitions of each timing; the best counts.", metavar="N")] = 3,
) -> None:
    """Measure a wake word on streams: misses, false alarms per hour, latency and compute.

    Example: `penstock wakeword evaluate marvin/ --data clips/ --against plain/`

    The bundle listens to two streams synthesised from clips and noise: one like MLPerf Tiny's (1,200 s, the word 50
    times), and hours of other words, noise and silence with each clip of the word once. Compute is measured on
    silence, noise, speech and the word.
    """
    from penstock.evaluation.plots import write_figure
    from penstock.runtime.bundle.bundle import Bundle
    from penstock.runtime.streaming.listener import stream_config_of
    from penstock.wakeword.benchmark import run_benchmark
    from penstock.wakeword.clips import load_clip_sets
    from penstock.wakeword.report import cost_table, det_figure, metrics_table

    if not hours > 0:
        raise DataError(f"--hours must be more than 0, got {hours:g}.")
    if repeats < 1:
        raise DataError(f"--repeats must be at least 1, got {repeats}.")
    paths = [path for path in (bundle, against) if path is not None]
    bundles = {name: Bundle.read(path) for name, path in zip(display_names(paths), paths, strict=True)}
    manifest = next(iter(bundles.values())).manifest
    word = manifest.labels[stream_config_of(manifest).words[0]]
    results = run_benchmark(
        bundles,
        load_clip_sets(data, word, subset=subset)[split],
        word,
        hours=hours,
        seed=seed,
        repeats=repeats,
        log=_log_to_stderr(silent=as_json),
    )
    as_dict = {name: result.to_json() for name, result in results.items()}
    if out is not None:
        write_atomically(out, (json.dumps(as_dict, indent=1) + "\n").encode())
    if plot is not None:
        curves = {name: result.points for name, result in results.items()}
        chosen = {name: result.operating_point for name, result in results.items()}
        write_figure(det_figure(curves, chosen=chosen), plot)
    metrics = {f"{name}: MLPerf Tiny": result.tiny.metrics for name, result in results.items()}
    metrics |= {f"{name}: {hours:g} h": result.long.metrics for name, result in results.items()}
    show(
        as_json,
        as_dict,
        metrics_table(metrics, title=f"'{word}' in streams"),
        cost_table({name: result.costs for name, result in results.items()}),
        *(
            f"{name}: {result.long.stopped_early:.1%} of the windows stop before the last stage"
            for name, result in results.items()
        ),
        *([line(f"Written: {out}")] if out else []),
    )


def display_names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each bundle: that of its folder, or its whole path where two folders have the same name."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _parse_blocks(text: str) -> tuple[int, ...]:
    try:
        return () if text == "none" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"--gates {text}: expected block numbers from 1 to 8, such as 2,5, or none.") from None


def _log_to_stderr(*, silent: bool) -> Callable[[str], None]:
    """Return a function that prints progress messages, each with the time since now."""
    start, console = time.perf_counter(), Console(stderr=True, quiet=silent)
    return lambda text: console.print(f"[dim]{_clock(start)}[/] {text}")


def _clock(start: float) -> str:
    seconds = int(time.perf_counter() - start)
    return f"{seconds // 60}:{seconds % 60:02d}"
