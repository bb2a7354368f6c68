"""Train a wake word from clips, and export it as a bundle that listens.

    clips -> windows -> fit -> hard negatives from streams -> fit -> calibrate -> validation streams -> bundle

The network learns to distinguish all words, which detects the wake word better than wake word against rest. Its first
gate stops windows without speech, its second windows of other words; both are calibrated, and the detection threshold
is chosen, on held-out speakers. Test speakers are never used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
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
from penstock.training.config import FitConfig
from penstock.training.fit import fit
from penstock.training.optimizer import OptimizerConfig
from penstock.wakeword.clips import ClipSet
from penstock.wakeword.metrics import hours_needed
from penstock.wakeword.scoring import Floats, Labels, mine_hard_negatives, score_stream, window_outputs
from penstock.wakeword.streams import StreamSpec, SyntheticStream, synthesize_stream
from penstock.wakeword.thresholds import OperatingPoint, choose_operating_point, det_curve
from penstock.wakeword.windows import AugmentConfig, draw_windows, wakeword_classes

OBJECTIVE = Objective(alpha=0.4, beta=0.1)

DETECTED = 3.0  # log-odds above which the open network clearly detects the word in a window
THRESHOLDS = tuple(np.linspace(-2.0, 9.8, 119).round(1).tolist())
"""Detection thresholds to choose from, fixed beforehand."""


@dataclass(frozen=True)
class WakeWordConfig:
    """How a wake word is trained.

    Attributes:
        width: channels of the network's first block.
        gate_blocks: blocks (1 to 8) after which gates are placed: two; one, for the word alone; or none.
        windows: number of training windows.
        epochs: passes over them; each round of hard negatives adds half as many.
        rounds: rounds of hard-negative mining.
        max_positive_loss: share of the detectable words that the gates may stop; see `calibrate_gates`.
        max_false_alarms_per_hour: limit that the threshold is chosen for, on validation streams.
        alarm_confidence: confidence of that limit; None takes the counted rate as it is.
        max_miss_rate: share of words that may be missed; the threshold lies midway between both limits.
        validation_hours: length of the validation streams; 13 h with two false alarms allow the claim of at most 0.5
            per hour at 95 %.
        mining_hours: length of the streams that each round mines.
        frontend, frames, hop: features, length and spacing of windows.
        smoothing: number of windows that a score is averaged over.
        seed: seed of everything random.
    """

    width: int = 24
    gate_blocks: tuple[int, ...] = (2, 5)
    windows: int = 160_000
    epochs: int = 4
    rounds: int = 1
    max_positive_loss: float = 0.003
    max_false_alarms_per_hour: float = 0.5
    alarm_confidence: float | None = 0.95
    max_miss_rate: float = 0.05
    validation_hours: float = 13.0
    mining_hours: float = 6.0
    frontend: LogMel = LogMel()
    frames: int = 49
    hop: int = 5
    smoothing: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        blocks = self.gate_blocks
        if len(blocks) > 2 or list(blocks) != sorted(set(blocks)) or not set(blocks) <= set(range(1, 9)):
            raise DataError(f"gate_blocks must be at most two ascending blocks from 1 to 8, got {blocks}.")
        for name in ("width", "windows", "epochs", "frames", "hop", "smoothing"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.rounds < 0:
            raise DataError(f"rounds must be at least 0, got {self.rounds}.")
        for name in ("validation_hours", "mining_hours", "max_false_alarms_per_hour"):
            if not getattr(self, name) > 0:
                raise DataError(f"{name} must be more than 0, got {getattr(self, name):g}.")
        if not 0 <= self.max_miss_rate < 1:
            raise DataError(f"max_miss_rate must be at least 0 and below 1, got {self.max_miss_rate:g}.")
        if not 0 < self.max_positive_loss < 1:
            raise DataError(
                f"max_positive_loss must be between 0 and 1, such as 0.003, got {self.max_positive_loss:g}."
            )
        if self.alarm_confidence is not None:
            needed = hours_needed(self.max_false_alarms_per_hour, self.alarm_confidence)
            if self.validation_hours < needed:
                raise DataError(
                    f"to claim at most {self.max_false_alarms_per_hour:g} false alarms per hour with "
                    f"{100 * self.alarm_confidence:g} % confidence takes at least {needed:.1f} h of validation "
                    f"streams, got {self.validation_hours:g} h. Use more hours, a higher limit, or no confidence."
                )


@dataclass(frozen=True, eq=False)
class TrainedWakeWord:
    """A trained wake word.

    Attributes:
        net: trained and calibrated network.
        stream_config: how it listens, with the chosen threshold.
        classes: name of each label.
        points: detection error trade-off on the validation streams.
        chosen: operating point, one of ``points``.
        reached: share of the validation streams' windows that reached each stage.
    """

    net: GatedNetwork
    stream_config: StreamConfig
    classes: tuple[str, ...]
    points: tuple[OperatingPoint, ...]
    chosen: OperatingPoint
    reached: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the chosen operating point and its metrics as plain values for JSON."""
        metrics = self.chosen.metrics
        return {
            "classes": list(self.classes),
            "threshold": self.chosen.threshold,
            "misses": metrics.misses,
            "spoken": metrics.spoken,
            "false_alarms": metrics.false_alarms,
            "miss_bound": metrics.miss_bound(),
            "false_alarm_bound": metrics.false_alarm_bound(),
            "hours": metrics.hours,
            "reached": list(self.reached),
        }

    def export(self, folder: str | Path) -> Exported:
        """Write the bundle that `penstock listen` runs."""
        example = torch.zeros(2, *self.stream_config.shape)
        return export_bundle(self.net, example, folder, labels=self.classes, stream_config=self.stream_config)


def train_wakeword(
    clips: dict[str, ClipSet],
    word: str,
    config: WakeWordConfig = WakeWordConfig(),
    *,
    folder: str | Path | None = None,
    progress: bool = True,
    log: Callable[[str], None] = lambda text: None,
) -> TrainedWakeWord:
    """Train a network to detect a word in a stream.

    Args:
        clips: train and validation clips; see `penstock.wakeword.clips.load_clip_sets`.
        folder: folder for logs and checkpoints; an interrupted training resumes from it.
        log: is called with progress messages.

    Raises:
        DataError: when no threshold keeps the allowed false alarms.
        CalibrationError: when the network detects too few words to calibrate the gates.
    """
    train, validation = clips["train"], clips["validation"]
    classes = wakeword_classes(train, word)
    log(f"drawing {config.windows:,} windows from {sum(map(len, train.words.values())):,} clips")
    x, y = _draw(train, word, config, config.windows, config.seed)
    stream_config = _build_stream_config(x, config)
    x = _standardised(x, stream_config)
    net = _build_network(len(classes), stream_config, config)

    def train_on(x: Floats, y: Labels, *, epochs: int, rate: float, run: int) -> None:
        fit(
            net,
            Labelled(torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(y)),
            objective=OBJECTIVE,
            config=FitConfig(
                optimizer=OptimizerConfig(rate, network_rate=1.0),
                epochs=epochs,
                batch_size=128,
                folder=None if folder is None else Path(folder) / f"round-{run}",
                seed=config.seed,
                progress=progress,
            ),
        )

    train_on(x, y, epochs=config.epochs, rate=0.01, run=0)
    for number in range(1, config.rounds + 1):
        log(f"round {number} of hard-negative mining: scoring streams of other words")
        seed = config.seed + 1000 * number
        hard_x, hard_y = mine_hard_negatives(net, stream_config, train, word, hours=config.mining_hours, seed=seed)
        new_x, new_y = _draw(train, word, config, config.windows // 2, config.seed + 100 + number)
        kept = len(x) // 2
        x = np.concatenate([_standardised(new_x, stream_config), x[:kept], *[hard_x] * 3])
        y = np.concatenate([new_y, y[:kept], *[hard_y] * 3])
        log(f"training on {len(hard_x):,} hard negatives")
        train_on(x, y, epochs=max(1, config.epochs // 2), rate=0.005, run=number)
    if config.gate_blocks:
        log("calibrating the gates on held-out speakers")
        calibrate_gates(net, stream_config, validation, word, config)
    log(f"choosing the threshold on {config.validation_hours:g} h of streams of held-out speakers")
    scores = [score_stream(net, stream_config, stream) for stream in validation_streams(validation, word, config)]
    points = det_curve([scored for scored, _ in scores], THRESHOLDS)
    exit_stage = np.concatenate([exits for _, exits in scores])
    chosen = choose_operating_point(
        points,
        per_hour=config.max_false_alarms_per_hour,
        confidence=config.alarm_confidence,
        max_miss_rate=config.max_miss_rate,
    )
    return TrainedWakeWord(
        net,
        replace(stream_config, detector=stream_config.detector.at(chosen.threshold)),
        classes,
        tuple(points),
        chosen,
        tuple(float(np.mean(exit_stage >= stage)) for stage in range(1, len(net.stages) + 1)),
    )


def calibrate_gates(
    net: GatedNetwork, stream_config: StreamConfig, clips: ClipSet, word: str, config: WakeWordConfig
) -> None:
    """Set the gates' thresholds so that they stop few of the words that the open network detects.

    Only windows with the whole word that the open network clearly detects count. The others are lost with or without
    gates, and a gate that had to pass them would pass much else. Windows of one clip are not independent, so this is
    not a guarantee, and the bundle has none.

    Raises:
        CalibrationError: when too few windows count.
    """
    augment = AugmentConfig(snr_db=(5.0, 30.0), gain_db=(-6.0, 6.0), speed=(1.0, 1.0), masked=0.0)
    count = max(2000, config.windows // 8)
    x, y = _draw(clips, word, config, count, config.seed + 7, augment)
    x = _standardised(x, stream_config)
    logits, _ = window_outputs(net, x)
    counted = (y != 1) | (log_odds(logits, 1) > DETECTED)
    if not (counted & (y == 1)).any():
        raise CalibrationError(
            f"the network clearly detects '{word}' in none of {int((y == 1).sum()):,} windows: train longer, or add "
            "clips of it."
        )
    data = (torch.from_numpy(np.ascontiguousarray(x[counted])), torch.from_numpy(y[counted]))
    try:
        calibrate(net, data, max_positive_loss=config.max_positive_loss)
    except CalibrationError as error:
        raise CalibrationError(
            f"cannot calibrate the gates to stop at most {config.max_positive_loss:g} of the detected words: {error} "
            "Draw more windows (--windows), allow a larger share (--max-positive-loss), or train longer."
        ) from error
    net.guarantee = None


def validation_streams(clips: ClipSet, word: str, config: WakeWordConfig) -> Iterator[SyntheticStream]:
    """Synthesize streams of about an hour from held-out clips."""
    count = max(1, round(config.validation_hours))
    seconds = config.validation_hours * 3600 / count
    times = max(1, min(len(clips.words[word]), round(seconds / 45)))
    for i in tracked(range(count), "scoring"):
        yield synthesize_stream(StreamSpec(seconds, word, times), clips, config.seed + 500 + i)


def _draw(
    clips: ClipSet, word: str, config: WakeWordConfig, count: int, seed: int, augment: AugmentConfig = AugmentConfig()
) -> tuple[Floats, Labels]:
    frontend, frames = config.frontend, config.frames
    return draw_windows(clips, word, count, frontend=frontend, frames=frames, augment=augment, seed=seed)


def _build_stream_config(x: Floats, config: WakeWordConfig) -> StreamConfig:
    mean, std = x.mean(axis=(0, 2), dtype=np.float64), x.std(axis=(0, 2), dtype=np.float64)
    return StreamConfig(
        config.frontend,
        config.frames,
        config.hop,
        tuple(mean.round(6).tolist()),
        tuple(std.round(6).tolist()),
        words=(1,),
        detector=DetectorConfig(threshold=0.0, off_threshold=-2.0, smoothing=config.smoothing),
    )


def _standardised(x: Floats, stream_config: StreamConfig) -> Floats:
    return stream_config.standardised(x.swapaxes(1, 2)).swapaxes(1, 2)


def _build_network(classes: int, stream_config: StreamConfig, config: WakeWordConfig) -> GatedNetwork:
    torch.manual_seed(config.seed)
    model = resnet8_1d(stream_config.shape[0], classes, config.width)
    speech, wake_word = list(range(1, classes)), [1]
    return gate(
        model,
        torch.zeros(2, *stream_config.shape),
        at=[f"blocks.{block - 1}" for block in config.gate_blocks] or 0,
        positives=[speech, wake_word][2 - len(config.gate_blocks) :],
    )
