"""The command that hears a bundle out on composed streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.show import AsJson, line, show
from penstock.errors import DataError

PARTS = ("validation", "test")


def judge(
    bundle: Annotated[Path, typer.Argument(help="A bundle that listens.", show_default=False)],
    data: Annotated[
        Path, typer.Option(help="Speech Commands, or a folder of clips: what penstock train wakeword was given.")
    ],
    against: Annotated[
        Path | None, typer.Option(help="Another bundle, on the same streams; such as one without gates.")
    ] = None,
    part: Annotated[
        str, typer.Option(help="Whose voices: test, or validation while you are still choosing something.")
    ] = "test",
    hours: Annotated[float, typer.Option(help="Of the long stream.")] = 4.0,
    seed: Annotated[int, typer.Option(help="Another seed composes other streams.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Of what is timed; the best counts.")] = 3,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write all of it here, as JSON.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw misses against false alarms here, as a PNG.")] = None,
    subset: Annotated[bool, typer.Option("--subset", help="Let Speech Commands lack clips that it lists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a bundle as people judge a wake word: words missed, false alarms an hour, how late, at what cost.

    It listens to two streams that are composed from clips and noise: one as MLPerf Tiny has it (1,200 s, the word 50
    times), and hours of other words, noise and silence with each clip of the word once. Then to silence, noise, speech
    and the word alone, to measure what a second costs.

    Example: `penstock judge marvin/ --against plain/ --data sets/speech_commands`
    """
    from penstock.cli.arguments import one_of
    from penstock.runtime.bundle.bundle import Bundle
    from penstock.runtime.files import write_atomically
    from penstock.runtime.streaming.listener import stream_config_of
    from penstock.wakeword.benchmark import run_benchmark
    from penstock.wakeword.clips import load_clip_sets
    from penstock.wakeword.report import det_plot, listening_table, upkeep_table
    from penstock.wakeword.thresholds import OperatingPoint

    one_of("--part", part, {name: name for name in PARTS})
    if not hours > 0:
        raise DataError(f"--hours {hours:g} is not possible: give more than 0.")
    paths = [where for where in (bundle, against) if where is not None]
    bundles = {name: Bundle.read(where) for name, where in zip(named(paths), paths, strict=True)}
    manifest = next(iter(bundles.values())).manifest
    word = manifest.labels[stream_config_of(manifest).words[0]]
    console = Console(stderr=True)
    found = run_benchmark(
        bundles,
        load_clip_sets(data, word, subset=subset)[part],
        word,
        hours=hours,
        seed=seed,
        repeats=repeats,
        say=(lambda text: None) if as_json else (lambda text: console.print(f"[dim]{text}")),
    )
    plain = {name: examined.to_json() for name, examined in found.items()}
    if out is not None:
        write_atomically(out, (json.dumps(plain, indent=1) + "\n").encode())
    if plot is not None:
        chosen = {
            name: OperatingPoint(stream_config_of(one.long.manifest).detector.threshold, one.long.metrics)
            for name, one in found.items()
        }
        det_plot({name: one.points for name, one in found.items()}, plot, chosen=chosen)
    judged = {f"{name}: MLPerf Tiny": one.tiny.metrics for name, one in found.items()}
    judged |= {f"{name}: {hours:g} h": one.long.metrics for name, one in found.items()}
    show(
        as_json,
        plain,
        listening_table(judged, title=f"'{word}' in streams"),
        upkeep_table({name: one.measure_cost for name, one in found.items()}),
        *(
            f"{name}: {one.long.stopped_early:.1%} of the windows never reach the last stage"
            for name, one in found.items()
        ),
        *([line(f"Written: {out}")] if out else []),
    )


def named(paths: Sequence[Path]) -> list[str]:
    """Return what to call each bundle: its folder's name, or the path as it was given where two have one name."""
    names = [where.resolve().name for where in paths]
    return names if len(set(names)) == len(names) else [str(where) for where in paths]
