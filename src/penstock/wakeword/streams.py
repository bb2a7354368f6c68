"""Streams composed from clips and noise by a seeded recipe: where every word is known to the sample.

A stream is a row of scenes: silence, noise alone, or speech in noise. In a scene of speech, words follow each other
with gaps between them, and a bed of noise lies below them. The word that is listened for is said so many times, spread
over the scenes of speech; each clip of it is used once before any is used again. First the whole stream is written
down (`plan_scenes`), then it is mixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.datasets.sounds import RATE_HZ, Samples
from penstock.errors import DataError
from penstock.runtime.streaming.features import FULL_SCALE
from penstock.wakeword.augmentation import add, db_below, noise_excerpt, scale_to_rms, spoken
from penstock.wakeword.clips import Clip, ClipSet
from penstock.wakeword.metrics import Utterance

KINDS = ("silence", "noise", "speech")
"""Of scenes. Silence is what a quiet room leaves: noise far below speech."""

SPEECH_LEVEL = 0.05
"""What the loudness of noise alone is measured against: that of a usual clip."""

MOST_LEVELLED_DB = 30.0
"""A clip is brought to the loudness of its scene by so much and no more: what is next to silent stays it."""


@dataclass(frozen=True)
class StreamSpec:
    """What a stream is made of.

    Attributes:
        seconds: its length.
        word: that is listened for.
        times: how often it is said.
        shares: of the time, for each kind of scene.
        scene_s: a scene is between so long and so long.
        gap_s: so much is between two clips of a scene.
        snr_db: how far the noise of a scene lies below each of its words: they are brought to one loudness.
        gain_db: how much quieter or louder that is than they were recorded, in the median.
    """

    seconds: float
    word: str
    times: int
    shares: Mapping[str, float] = field(default_factory=lambda: {"silence": 0.2, "noise": 0.3, "speech": 0.5})
    scene_s: tuple[float, float] = (8.0, 25.0)
    gap_s: tuple[float, float] = (0.1, 1.5)
    snr_db: tuple[float, float] = (5.0, 30.0)
    gain_db: tuple[float, float] = (-6.0, 6.0)

    def __post_init__(self) -> None:
        if not 1 <= self.seconds < math.inf or self.times < 0:
            raise DataError(f"{self.seconds:g} s with {self.times} words came: a stream has 1 s or more, and 0 words.")
        if set(self.shares) - set(KINDS) or not math.isclose(sum(self.shares.values()), 1):
            raise DataError(f"shares {dict(self.shares)} came: of {', '.join(KINDS)}, and together 1.")
        for name in ("scene_s", "gap_s", "snr_db", "gain_db"):
            low, high = getattr(self, name)
            if not low <= high or (name.endswith("_s") and low < 0):
                raise DataError(f"{name} = ({low:g}, {high:g}) came: the lower number first, and no time below 0.")
        if self.times and not self.shares.get("speech"):
            raise DataError(f"'{self.word}' is to be said {self.times} times, and there is no scene of speech.")


def mlperf_tiny(word: str = "marvin") -> StreamSpec:
    """Return a stream as MLPerf Tiny's streaming wake word has it: 1,200 s of speech and noise, 50 times the word."""
    return StreamSpec(1200.0, word, 50, shares={"speech": 0.8, "noise": 0.2})


@dataclass(frozen=True, eq=False)
class SyntheticStream:
    """A stream, and what is in it.

    Attributes:
        samples: all of it.
        truths: where the word is said.
        scenes: (kind, begin_s, end_s) one after the other.
    """

    samples: Samples
    truths: tuple[Utterance, ...]
    scenes: tuple[tuple[str, float, float], ...]

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / RATE_HZ


@dataclass(frozen=True, eq=False)
class Scene:
    """A scene as it is written down; places are samples from its beginning."""

    kind: str
    length: int
    placed: tuple[tuple[Clip, int, bool], ...] = ()  # the clip, where, and whether it is the word


def synthesize_stream(spec: StreamSpec, of: ClipSet, seed: int) -> SyntheticStream:
    """Compose a stream.

    Raises:
        DataError: when the word does not fit into the stream as often as asked for, or there is no clip of it.
    """
    rng = np.random.default_rng(seed)
    mixed, truths, scenes, at = [], [], [], 0
    for scene in plan_scenes(spec, of, rng):
        sound, said = _mix(scene, spec, of, rng)
        truths += [Utterance((at + begin) / RATE_HZ, (at + end) / RATE_HZ) for begin, end in said]
        scenes.append((scene.kind, at / RATE_HZ, (at + scene.length) / RATE_HZ))
        mixed.append((np.clip(sound, -1, 1) * (FULL_SCALE - 1)).astype(np.int16))
        at += scene.length
    return SyntheticStream(np.concatenate(mixed), tuple(truths), tuple(scenes))


def plan_scenes(spec: StreamSpec, of: ClipSet, rng: np.random.Generator) -> list[Scene]:
    """Write a stream down: its scenes, and what is said in each."""
    if spec.times and not of.words.get(spec.word):
        raise DataError(f"there is no clip of '{spec.word}' to compose a stream with.")
    lengths = _lengths(spec, rng)
    longest = max((len(clip.samples) for clips in of.words.values() for clip in clips), default=0)
    slots = [_slots(kind, length, max(RATE_HZ, longest), spec, rng) for kind, length in lengths]
    places = [(number, i) for number, some in enumerate(slots) for i in range(len(some))]
    if spec.times > len(places) // 2:
        raise DataError(
            f"'{spec.word}' is to be said {spec.times} times among as many other words, and the scenes of speech "
            f"have room for {len(places)} words: make the stream longer."
        )
    chosen = {places[i] for i in rng.permutation(len(places))[: spec.times]}
    word = _shuffled(of.words.get(spec.word, ()), rng)
    others = _shuffled([clip for name in of.without(spec.word) for clip in of.words[name]], rng)
    scenes = []
    for number, ((kind, length), some) in enumerate(zip(lengths, slots, strict=True)):
        placed = tuple(
            (next(word if (number, i) in chosen else others), at, (number, i) in chosen) for i, at in enumerate(some)
        )
        scenes.append(Scene(kind, length, placed))
    return scenes


def _lengths(spec: StreamSpec, rng: np.random.Generator) -> list[tuple[str, int]]:
    """Return scenes of each kind that fill its share of the time, in random order."""
    scenes: list[tuple[str, int]] = []
    for kind in KINDS:
        left = round(spec.shares.get(kind, 0.0) * spec.seconds * RATE_HZ)
        while left > 0:
            length = min(left, round(rng.uniform(*spec.scene_s) * RATE_HZ))
            if left - length < spec.scene_s[0] * RATE_HZ:
                length = left
            scenes.append((kind, length))
            left -= length
    return [scenes[i] for i in rng.permutation(len(scenes))]


def _slots(kind: str, length: int, room: int, spec: StreamSpec, rng: np.random.Generator) -> list[int]:
    """Return where clips begin in a scene: room for the longest, and gaps."""
    slots: list[int] = []
    at = round(rng.uniform(*spec.gap_s) * RATE_HZ)
    while kind == "speech" and at + room <= length:
        slots.append(at)
        at += room + round(rng.uniform(*spec.gap_s) * RATE_HZ)
    return slots


def _mix(scene: Scene, spec: StreamSpec, of: ClipSet, rng: np.random.Generator) -> tuple[Any, list[tuple[int, int]]]:
    sound, said = np.zeros(scene.length, np.float32), []
    gain_db = rng.uniform(*spec.gain_db)
    level = SPEECH_LEVEL
    if scene.placed:
        level = float(np.median([clip.loudness for clip, _, _ in scene.placed])) * 10 ** (gain_db / 20)
    for clip, at, is_word in scene.placed:
        samples, begin, end = spoken(clip, gain_db=_louder_db(clip, level))
        add(sound, samples, at)
        if is_word:
            said.append((at + begin, at + end))
    depth_db = 50.0 if scene.kind == "silence" else rng.uniform(*spec.snr_db)
    if len(of.noises):
        noise = of.noises[int(rng.integers(len(of.noises)))]
        sound += scale_to_rms(noise_excerpt(noise, scene.length, rng), db_below(level, depth_db))
    return sound, said


def _louder_db(clip: Clip, level: float) -> float:
    """Return by how much a clip is made louder to be as loud as ``level``."""
    if not clip.loudness or not level:
        return 0.0
    return float(np.clip(20 * math.log10(level / clip.loudness), -MOST_LEVELLED_DB, MOST_LEVELLED_DB))


def _shuffled(clips: Sequence[Clip], rng: np.random.Generator) -> Iterator[Clip]:
    """Give clips in random order, all of them before any comes again."""
    while len(clips):
        for i in rng.permutation(len(clips)):
            yield clips[i]
