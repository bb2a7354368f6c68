"""Synthesize streams from clips and noise, with every occurrence of the wake word known to the sample.

A stream is a sequence of scenes: silence, noise alone, or speech in noise. In a speech scene, words follow each other
with gaps over a bed of noise. The wake word occurs a given number of times, spread over the speech scenes; every clip
of it is used once before any is used again. The whole stream is planned first (`plan_scenes`), then mixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.datasets.audio_clips import RATE_HZ, Samples
from penstock.errors import DataError
from penstock.runtime.streaming.features import FULL_SCALE
from penstock.wakeword.augmentation import change_clip, db_below, mix_in, noise_excerpt, scale_to_rms
from penstock.wakeword.clips import Clip, ClipSet
from penstock.wakeword.metrics import Utterance

KINDS = ("silence", "noise", "speech")
"""Kinds of scenes. Silence is that of a quiet room: noise far below speech."""

SPEECH_LEVEL = 0.05  # reference level for noise alone: the loudness of a typical clip
MAX_LEVELLING_DB = 30.0
"""Largest gain that brings a clip to the loudness of its scene: nearly silent clips stay nearly silent."""


@dataclass(frozen=True)
class StreamSpec:
    """What a stream consists of.

    Attributes:
        seconds: its length.
        word: the wake word.
        times: how often it occurs.
        shares: share of the time of each kind of scene.
        scene_s: range of the length of a scene.
        gap_s: range of the gap between two clips of a scene.
        snr_db: range of the signal-to-noise ratio of a scene, whose words are all brought to the same loudness.
        gain_db: range of the gain of a scene relative to the median loudness of its recordings.
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
            raise DataError(f"a stream needs at least 1 s and 0 words, got {self.seconds:g} s and {self.times} words.")
        if set(self.shares) - set(KINDS) or not math.isclose(sum(self.shares.values()), 1):
            raise DataError(f"shares must be those of {', '.join(KINDS)} and sum to 1, got {dict(self.shares)}.")
        for name in ("scene_s", "gap_s", "snr_db", "gain_db"):
            low, high = getattr(self, name)
            if not low <= high or (name.endswith("_s") and low < 0):
                raise DataError(f"{name} must be a range (low, high) without negative times, got ({low:g}, {high:g}).")
        if self.times and not self.shares.get("speech"):
            raise DataError(f"cannot place '{self.word}' {self.times} times: shares has no speech.")


def mlperf_tiny(word: str, times: int = 50) -> StreamSpec:
    """Return a stream like that of MLPerf Tiny's streaming wake word: 1,200 s, the word 50 times."""
    return StreamSpec(1200.0, word, times, shares={"speech": 0.8, "noise": 0.2})


@dataclass(frozen=True, eq=False)
class SyntheticStream:
    """A stream and its ground truth.

    Attributes:
        samples: the sound.
        truths: where the wake word is.
        scenes: (kind, begin_s, end_s) in order.
    """

    samples: Samples
    truths: tuple[Utterance, ...]
    scenes: tuple[tuple[str, float, float], ...]

    @property
    def seconds(self) -> float:
        """Length of the stream."""
        return len(self.samples) / RATE_HZ


@dataclass(frozen=True, eq=False)
class Scene:
    """A planned scene; offsets count samples from its beginning."""

    kind: str
    length: int
    placed: tuple[tuple[Clip, int, bool], ...] = ()  # (clip, offset, whether it is the wake word)


def synthesize_stream(spec: StreamSpec, clips: ClipSet, seed: int) -> SyntheticStream:
    """Synthesize a stream from clips.

    Raises:
        DataError: when the stream is too short for the number of words, or there is no clip of the word.
    """
    rng = np.random.default_rng(seed)
    mixed, truths, scenes, offset = [], [], [], 0
    for scene in plan_scenes(spec, clips, rng):
        sound, words = _mix(scene, spec, clips, rng)
        truths += [Utterance((offset + begin) / RATE_HZ, (offset + end) / RATE_HZ) for begin, end in words]
        scenes.append((scene.kind, offset / RATE_HZ, (offset + scene.length) / RATE_HZ))
        mixed.append((np.clip(sound, -1, 1) * (FULL_SCALE - 1)).astype(np.int16))
        offset += scene.length
    return SyntheticStream(np.concatenate(mixed), tuple(truths), tuple(scenes))


def plan_scenes(spec: StreamSpec, clips: ClipSet, rng: np.random.Generator) -> list[Scene]:
    """Plan the scenes of a stream, and which clip is where."""
    if spec.times and not clips.words.get(spec.word):
        raise DataError(f"there is no clip of '{spec.word}' to synthesize a stream from.")
    lengths = _lengths(spec, rng)
    longest = max((len(clip.samples) for recordings in clips.words.values() for clip in recordings), default=0)
    slots = [_word_offsets(kind, length, max(RATE_HZ, longest), spec, rng) for kind, length in lengths]
    places = [(number, i) for number, offsets in enumerate(slots) for i in range(len(offsets))]
    if spec.times > len(places) // 2:
        raise DataError(
            f"cannot place '{spec.word}' {spec.times} times among as many other words: the speech scenes have room for "
            f"{len(places)} words. Make the stream longer."
        )
    chosen = {places[i] for i in rng.permutation(len(places))[: spec.times]}
    word = _shuffled(clips.words.get(spec.word, ()), rng)
    others = _shuffled([clip for name in clips.other_words(spec.word) for clip in clips.words[name]], rng)
    scenes = []
    for number, ((kind, length), offsets) in enumerate(zip(lengths, slots, strict=True)):
        placed = tuple(
            (next(word if (number, i) in chosen else others), at, (number, i) in chosen) for i, at in enumerate(offsets)
        )
        scenes.append(Scene(kind, length, placed))
    return scenes


def _lengths(spec: StreamSpec, rng: np.random.Generator) -> list[tuple[str, int]]:
    """Return scenes that fill each kind's share of the time, in random order."""
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


def _word_offsets(kind: str, length: int, room: int, spec: StreamSpec, rng: np.random.Generator) -> list[int]:
    """Return where clips begin in a scene, with room for the longest clip and a gap after each."""
    offsets: list[int] = []
    at = round(rng.uniform(*spec.gap_s) * RATE_HZ)
    while kind == "speech" and at + room <= length:
        offsets.append(at)
        at += room + round(rng.uniform(*spec.gap_s) * RATE_HZ)
    return offsets


def _mix(scene: Scene, spec: StreamSpec, clips: ClipSet, rng: np.random.Generator) -> tuple[Any, list[tuple[int, int]]]:
    sound, words = np.zeros(scene.length, np.float32), []
    gain_db = rng.uniform(*spec.gain_db)
    level = SPEECH_LEVEL
    if scene.placed:
        level = float(np.median([clip.loudness for clip, _, _ in scene.placed])) * 10 ** (gain_db / 20)
    for clip, at, is_word in scene.placed:
        samples, begin, end = change_clip(clip, gain_db=_levelling_gain_db(clip, level))
        mix_in(sound, samples, at)
        if is_word:
            words.append((at + begin, at + end))
    snr_db = 50.0 if scene.kind == "silence" else rng.uniform(*spec.snr_db)
    if len(clips.noises):
        noise = clips.noises[int(rng.integers(len(clips.noises)))]
        sound += scale_to_rms(noise_excerpt(noise, scene.length, rng), db_below(level, snr_db))
    return sound, words


def _levelling_gain_db(clip: Clip, level: float) -> float:
    """Return the gain that brings a clip to this loudness, within limits."""
    if not clip.loudness or not level:
        return 0.0
    return float(np.clip(20 * math.log10(level / clip.loudness), -MAX_LEVELLING_DB, MAX_LEVELLING_DB))


def _shuffled(clips: Sequence[Clip], rng: np.random.Generator) -> Iterator[Clip]:
    """Yield clips in random order, forever, each once per pass."""
    while len(clips):
        for i in rng.permutation(len(clips)):
            yield clips[i]
