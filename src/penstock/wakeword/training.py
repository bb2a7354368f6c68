"""A wake word from a folder of clips: windows, training, hard negatives, gates, an operating point, a bundle.

    clips -> windows -> fit -> hard negatives from streams -> fit -> calibrate -> validation streams -> bundle

The network learns which word was said, not only whether it was the one: telling words apart is what it takes to hear
one. Its first gate stops what is no speech, its second what is another word; both are calibrated on held-out voices.
The threshold of the decision is chosen on streams composed from held-out voices. Test voices are never read here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.datasets.progress import tracked
from penstock.datasets.splits import Labelled
from penstock.errors import CalibrationError, DataError
from penstock.evaluation.calibrate import calibrate
from penstock.export import Exported, export_bundle
from penstock.gating.network import GatedNetwork
from penstock.gating.objective import Objective
from penstock.gating.surgery.insert import gate
from penstock.models import resnet8_1d
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import DetectorConfig, log_odds
from penstock.runtime.streaming.features import LogMel
from penstock.training.config import Hardware, OptimizerConfig
from penstock.training.fit import fit
from penstock.wakeword.clips import ClipSet
from penstock.wakeword.metrics import hours_needed
from penstock.wakeword.scoring import reached, run, stream_windows, trace
from penstock.wakeword.streams import StreamSpec, SyntheticStream, synthesize_stream
from penstock.wakeword.thresholds import OperatingPoint, choose, det
from penstock.wakeword.windows import AugmentConfig, class_names, windows

CLEAR = 3.0
"""Log-odds from which on a window is clearly taken for the word."""

THRESHOLDS = tuple(np.linspace(-2.0, 9.8, 119).round(1).tolist())
"""That an operating point is chosen from; fixed beforehand."""

Say = Callable[[str], None]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WakeWordConfig:
    """How a wake word is taught.

    Attributes:
        width: of the network.
        at: the blocks that gates stand behind: two gates, one for the word alone, or none for a plain network.
        windows: drawn to learn from.
        epochs: over them; and as many again, halved, in each round with hard negatives.
        rounds: of hard negatives.
        alpha, beta: of the objective.
        max_positive_loss: the share of what the network clearly hears that the gates may stop; see `calibrate_gates`.
        false_alarms_per_hour: that the threshold is chosen for, on validation streams.
        alarm_confidence: that no more of them come; None to take the mean of the validation streams at its word.
        missed: the share of words that may be missed there; the threshold lies between what either allows.
        hours: of validation streams; in 13, two false alarms may come and half of one an hour be claimed at 95 %.
        mined_hours: of streams to look for hard negatives in, each round.
        sense, frames, hop: what a window is, and how often one comes.
        smoothing: windows that a score is the mean of.
        seed: for all that is drawn.
    """

    width: int = 24
    at: tuple[int, ...] = (2, 5)
    windows: int = 160_000
    epochs: int = 4
    rounds: int = 1
    alpha: float = 0.4
    beta: float = 0.1
    max_positive_loss: float = 0.003
    confidence: float = 0.95
    false_alarms_per_hour: float = 0.5
    alarm_confidence: float | None = 0.95
    missed: float = 0.05
    hours: float = 13.0
    mined_hours: float = 6.0
    frontend: LogMel = LogMel()
    frames: int = 49
    hop: int = 5
    smoothing: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.at) > 2 or list(self.at) != sorted(set(self.at)) or not set(self.at) <= set(range(1, 9)):
            raise DataError(f"gates behind the blocks {self.at} came: up to two of 1 to 8, in their order.")
        for name in ("width", "windows", "epochs", "frames", "hop", "smoothing"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} = {getattr(self, name)} came: it is 1 or more.")
        sizes = (self.hours, self.mined_hours, self.false_alarms_per_hour)
        if self.rounds < 0 or not all(size > 0 for size in sizes):
            raise DataError("rounds are 0 or more, hours of streams and false alarms an hour more than 0.")
        if not 0 <= self.missed < 1:
            raise DataError(f"missed = {self.missed:g} came: it is a share of the words, from 0 to below 1.")
        if not 0 < self.max_positive_loss < 1:
            raise DataError(
                f"max_positive_loss = {self.max_positive_loss:g} came: it is a share between 0 and 1, such as 0.003."
            )
        if self.alarm_confidence is not None:
            needed = hours_needed(self.false_alarms_per_hour, self.alarm_confidence)
            if self.hours < needed:
                raise DataError(
                    f"{self.hours:g} h of streams came: to claim at most {self.false_alarms_per_hour:g} false alarms "
                    f"an hour with {100 * self.alarm_confidence:g} % confidence takes {needed:.1f} h or more, and "
                    "without any. Take more hours, or claim less, or nothing: no confidence."
                )


@dataclass(frozen=True, eq=False)
class TrainedWakeWord:
    """What came of a lesson.

    Attributes:
        net: trained and calibrated.
        hearing: with the decision that was chosen.
        classes: the name of each label.
        points: of the threshold, on the validation streams.
        chosen: among them.
        reached: the share of the validation streams' windows that reached each stage.
    """

    net: GatedNetwork
    stream_config: StreamConfig
    classes: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    chosen: OperatingPoint
    reached: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what was chosen, as plain values."""
        judged = self.chosen.metrics
        return {
            "classes": list(self.classes),
            "threshold": self.chosen.threshold,
            "misses": judged.misses,
            "spoken": judged.spoken,
            "false_alarms": judged.false_alarms,
            "miss_bound": judged.miss_bound(),
            "false_alarm_bound": judged.false_alarm_bound(),
            "hours": judged.hours,
            "reached": list(self.reached),
        }

    def export(self, folder: str | Path) -> Exported:
        """Write the bundle that `penstock listen` runs."""
        example = torch.zeros(2, *self.stream_config.shape)
        return export_bundle(self.net, example, folder, labels=self.classes, stream_config=self.stream_config)


def train_wakeword(
    of: dict[str, ClipSet],
    word: str,
    lesson: WakeWordConfig = WakeWordConfig(),
    *,
    hardware: Hardware = Hardware(),
    folder: str | Path | None = None,
    progress: bool = True,
    say: Say = lambda text: None,
) -> TrainedWakeWord:
    """Teach a network to hear a word in a stream.

    Args:
        of: the material of train and validation; see `penstock.wakeword.clips.load_clip_sets`.
        folder: for logs and checkpoints; a lesson that was killed goes on where it stopped.
        say: is told what goes on.

    Raises:
        DataError: when no threshold keeps the false alarms that are allowed.
        CalibrationError: when too few windows of the word are heard to set the gates by.
    """
    classes = class_names(of["train"], word)
    say(f"drawing {lesson.windows:,} windows from {sum(map(len, of['train'].words.values())):,} clips")
    x, y = _windows(of["train"], word, lesson, lesson.windows, lesson.seed)
    stream_config = _hearing(x, lesson)
    x = _standardised(x, stream_config)
    net = _network(len(classes), stream_config, lesson)
    train = partial(_fit, net, lesson=lesson, hardware=hardware, progress=progress)
    train(x, y, epochs=lesson.epochs, rate=0.01, folder=_inside(folder, 0))
    for number in range(1, lesson.rounds + 1):
        say(f"round {number} of hard negatives: listening to streams of other words")
        seed = lesson.seed + 1000 * number
        hard = hard_negatives(net, stream_config, of["train"], word, hours=lesson.mined_hours, seed=seed)
        fresh = _windows(of["train"], word, lesson, lesson.windows // 2, lesson.seed + 100 + number)
        kept = len(x) // 2
        x = np.concatenate([_standardised(fresh[0], stream_config), x[:kept], *[hard[0]] * 3])
        y = np.concatenate([fresh[1], y[:kept], *[hard[1]] * 3])
        say(f"learning from {len(hard[0]):,} of them")
        train(x, y, epochs=max(1, lesson.epochs // 2), rate=0.005, folder=_inside(folder, number))
    if lesson.at:
        say("calibrating the gates on held-out voices")
        calibrate_gates(net, stream_config, of["validation"], word, lesson)
    say(f"choosing the threshold on {lesson.hours:g} h of streams with held-out voices")
    traces = [trace(net, stream_config, stream) for stream in validation_streams(of["validation"], word, lesson)]
    points = det([one.scored_stream(stream_config.detector) for one in traces], THRESHOLDS)
    chosen = choose(
        points,
        per_hour=lesson.false_alarms_per_hour,
        confidence=lesson.alarm_confidence,
        missed=lesson.missed,
    )
    return TrainedWakeWord(
        net,
        replace(stream_config, detector=stream_config.detector.at(chosen.threshold)),
        classes,
        tuple(points),
        chosen,
        reached(traces, len(net.stages)),
    )


def hard_negatives(
    net: GatedNetwork,
    stream_config: StreamConfig,
    of: ClipSet,
    word: str,
    *,
    hours: float,
    seed: int,
    per_hour: int = 600,
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Listen to streams without the word, and return the windows that sound most like it.

    Returns:
        x: (windows, values, frames); y: what the network takes them for if it were not the word.
    """
    found: list[Floats] = []
    labels: list[npt.NDArray[np.int64]] = []
    for number in tracked(range(math.ceil(2 * hours)), "listening"):
        stream = synthesize_stream(StreamSpec(1800.0 * min(1.0, 2 * hours), word, 0), of, seed + number)
        x, _ = stream_windows(stream_config, stream.samples)
        logits, _ = run(net, x)
        scores = log_odds(logits, 1)
        worst = np.argsort(-scores)[: round(per_hour * stream.seconds / 3600)]
        worst = worst[scores[worst] > -3]
        logits[:, 1] = -np.inf
        found.append(x[worst])
        labels.append(logits[worst].argmax(1))
    return np.concatenate(found), np.concatenate(labels)


def calibrate_gates(
    net: GatedNetwork, stream_config: StreamConfig, of: ClipSet, word: str, lesson: WakeWordConfig
) -> None:
    """Choose the thresholds of the gates: of what the network would hear of held-out voices, so little may be stopped.

    Each window that holds the whole word counts, in noise as streams have it, if the open network clearly takes it for
    the word. Others are lost with or without gates, and a gate that had to let them pass would let much else pass. And
    windows of one clip are not independent. So this is a rule and no promise, and the bundle carries none.

    Raises:
        CalibrationError: when too few windows count.
    """
    spec = AugmentConfig(snr_db=(5.0, 30.0), gain_db=(-6.0, 6.0), speed=(1.0, 1.0), masked=0.0)
    count = max(2000, lesson.windows // 8)
    x, y = windows(
        of, word, count, frontend=lesson.frontend, frames=stream_config.frames, variety=spec, seed=lesson.seed + 7
    )
    x = _standardised(x, stream_config)
    logits, _ = run(net, x)
    counts = (y != 1) | (log_odds(logits, 1) > CLEAR)
    if not (counts & (y == 1)).any():
        raise CalibrationError(
            f"the network takes none of {int((y == 1).sum()):,} windows clearly for '{word}': train longer, or bring "
            "more clips of it."
        )
    data = (torch.from_numpy(np.ascontiguousarray(x[counts])), torch.from_numpy(y[counts]))
    try:
        calibrate(net, data, max_positive_loss=lesson.max_positive_loss, confidence=lesson.confidence)
    except CalibrationError as error:
        raise CalibrationError(
            f"the gates cannot be set to stop at most {lesson.max_positive_loss:g} of what is heard: {error} Draw more "
            "windows (--windows), allow a larger share (--max-positive-loss), or train until the word is heard."
        ) from error
    net.guarantee = None


def validation_streams(of: ClipSet, word: str, lesson: WakeWordConfig) -> Iterator[SyntheticStream]:
    """Compose streams of an hour or less with held-out voices, each clip of the word once or more."""
    count = max(1, round(lesson.hours))
    seconds = lesson.hours * 3600 / count
    times = max(1, min(len(of.words[word]), round(seconds / 45)))
    for i in tracked(range(count), "listening"):
        yield synthesize_stream(StreamSpec(seconds, word, times), of, lesson.seed + 500 + i)


def _windows(
    of: ClipSet, word: str, lesson: WakeWordConfig, count: int, seed: int
) -> tuple[Floats, npt.NDArray[np.int64]]:
    return windows(of, word, count, frontend=lesson.frontend, frames=lesson.frames, seed=seed)


def _hearing(x: Floats, lesson: WakeWordConfig) -> StreamConfig:
    mean, std = x.mean(axis=(0, 2), dtype=np.float64), x.std(axis=(0, 2), dtype=np.float64)
    return StreamConfig(
        lesson.frontend,
        lesson.frames,
        lesson.hop,
        tuple(mean.round(6).tolist()),
        tuple(std.round(6).tolist()),
        words=(1,),
        detector=DetectorConfig(threshold=0.0, off_threshold=-2.0, smoothing=lesson.smoothing),
    )


def _standardised(x: Floats, stream_config: StreamConfig) -> Floats:
    return stream_config.standardised(x.swapaxes(1, 2)).swapaxes(1, 2)


def _network(classes: int, stream_config: StreamConfig, lesson: WakeWordConfig) -> GatedNetwork:
    torch.manual_seed(lesson.seed)
    model = resnet8_1d(stream_config.shape[0], classes, lesson.width)
    speech, the_word = list(range(1, classes)), [1]
    return gate(
        model,
        torch.zeros(2, *stream_config.shape),
        at=[f"blocks.{block - 1}" for block in lesson.at] or 0,
        positives=[speech, the_word][2 - len(lesson.at) :],
    )


def _fit(
    net: GatedNetwork,
    x: Floats,
    y: npt.NDArray[np.int64],
    *,
    epochs: int,
    rate: float,
    folder: Path | None,
    lesson: WakeWordConfig,
    hardware: Hardware,
    progress: bool,
) -> None:
    fit(
        net,
        Labelled(torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)),
        objective=Objective(alpha=lesson.alpha, beta=lesson.beta),
        epochs=epochs,
        batch_size=128,
        optimizer=OptimizerConfig(rate),
        hardware=hardware,
        seed=lesson.seed,
        folder=folder,
        progress=progress,
    )


def _inside(folder: str | Path | None, number: int) -> Path | None:
    return None if folder is None else Path(folder) / f"round-{number}"
