"""The command that teaches a wake word: from a folder of clips to a bundle that listens."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from penstock.cli.show import AsJson, line, show
from penstock.errors import DataError
from penstock.runtime.files import make_folder


class NetworkByDefault(TyperGroup):
    """The group `penstock train`: what names no command of it trains a network, as it did before there were others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["network", *args]
        return super().parse_args(ctx, args)


def wakeword(
    word: Annotated[str, typer.Option(help="The word to hear: a folder of clips among the data.")],
    data: Annotated[
        Path,
        typer.Option(
            help="Speech Commands, or a folder with a folder of clips for each word: mono, 16 kHz, 16 bits, wav or "
            "flac. Noises may lie in `_background_noise_`."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that the bundle is written to.")],
    gates: Annotated[
        str, typer.Option(help="The blocks behind which gates stand: speech or not, the word or not. none: no gates.")
    ] = "2,5",
    width: Annotated[
        int, typer.Option(help="Channels of the first block; twice as wide takes four times as long.")
    ] = 24,
    windows: Annotated[int, typer.Option(help="Windows to learn from, drawn from the clips.")] = 160_000,
    epochs: Annotated[int, typer.Option(help="How often they are gone through.")] = 4,
    rounds: Annotated[int, typer.Option(help="Of learning from what sounds most like the word in streams.")] = 1,
    max_positive_loss: Annotated[
        float, typer.Option(help="The share of what the network clearly hears of the word that gates may stop.")
    ] = 0.003,
    false_alarms: Annotated[float, typer.Option(help="False alarms an hour that the threshold is chosen for.")] = 0.5,
    confidence: Annotated[
        float, typer.Option(help="That no more of them come in such streams. 0 claims nothing, and takes few hours.")
    ] = 0.95,
    missed: Annotated[
        float,
        typer.Option(
            help="The share of words that may be missed. The threshold lies midway between what both allow; where no "
            "threshold keeps both, the fewest are missed."
        ),
    ] = 0.05,
    hours: Annotated[
        float, typer.Option(help="Of streams with held-out clips that it is chosen on. More allow a lower threshold.")
    ] = 13.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bundle.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="For logs and checkpoints. A killed training goes on when started again.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw misses against false alarms here, as a PNG.")] = None,
    subset: Annotated[bool, typer.Option("--subset", help="Let Speech Commands lack clips that it lists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Teach a network to hear a word in a stream, and write a bundle that `penstock listen` runs.

    Windows are cut from the clips at random places, in noise, louder and softer, faster and slower. The network learns
    to tell all words apart; a first gate stops what is no speech, a second what is another word. What sounds most like
    the word in streams of other words is learnt anew. Gates and threshold are chosen on clips that were held out.

    Example: `penstock train wakeword --word marvin --data sets/speech_commands -o marvin/`
    """
    from penstock.wakeword.clips import load_clip_sets
    from penstock.wakeword.metrics import hours_needed
    from penstock.wakeword.report import det_plot, listening_table
    from penstock.wakeword.thresholds import misses_few
    from penstock.wakeword.training import WakeWordConfig, train_wakeword

    lesson = WakeWordConfig(
        width=width,
        at=_blocks(gates),
        windows=windows,
        epochs=epochs,
        rounds=rounds,
        max_positive_loss=max_positive_loss,
        false_alarms_per_hour=false_alarms,
        alarm_confidence=confidence or None,
        missed=missed,
        hours=hours,
        seed=seed,
    )
    for target in (out, *([plot.parent] if plot else [])):
        make_folder(target)  # said before anything is learnt
    began = time.perf_counter()
    console = Console(stderr=True)
    trained = train_wakeword(
        load_clip_sets(data, word, subset=subset),
        word,
        lesson,
        folder=folder,
        progress=not as_json,
        say=(lambda text: None) if as_json else (lambda text: console.print(f"[dim]{_clock(began)}[/] {text}")),
    )
    exported, judged = trained.export(out), trained.chosen.metrics
    few = misses_few(judged, missed, confidence or None)
    if plot is not None:
        det_plot({word: trained.points}, plot, chosen={word: trained.chosen}, per_hour=false_alarms)
    show(
        as_json,
        {**trained.to_json(), "id": exported.bundle.manifest.id, "seconds": round(time.perf_counter() - began, 1)},
        listening_table({word: judged}, title="On streams with held-out clips"),
        f"With 95 % confidence at most {judged.false_alarm_bound():.2g} false alarms an hour in such streams; to claim "
        f"{false_alarms:g} takes {hours_needed(false_alarms):.1f} h without any.",
        f"With 95 % confidence at most {judged.miss_bound():.1%} of the words are missed in them"
        + (
            "." if few else f"; no threshold keeps {missed:.1%} beside so few false alarms, and this one misses fewest."
        ),
        *(f"{share:.1%} of the windows reach stage {i}" for i, share in enumerate(trained.reached, start=1)),
        line(f"Written: {out}, taught in {_clock(began)}. Try: penstock listen {out} recording.wav"),
    )


def _blocks(text: str) -> tuple[int, ...]:
    try:
        return () if text == "none" else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DataError(f"--gates {text} is not possible: give numbers of blocks from 1 to 8, such as 2,5.") from None


def _clock(began: float) -> str:
    seconds = int(time.perf_counter() - began)
    return f"{seconds // 60}:{seconds % 60:02d}"
