"""Speech Commands: one-second words, some of them of interest, all others and noise the background.

P. Warden, arXiv:1804.03209, CC BY 4.0. Two layouts are read: the official release, v0.01 or v0.02, unpacked (a
folder of .wav files for each word, ``_background_noise_``, two lists), and a subset of it, as zips of .flac files
beside the same lists. The lists alone say which clip is for validation and which for testing; all others are for
training. In the release all clips that they name must be there, in a subset they need not. A speaker is in one part
only, which is checked.

There are ``negatives_per_positive`` negatives to one positive in each part; `penstock.datasets.balance` says how. Noise
files are shared out in time, so that no second of noise is in two parts: the first 60 % are for training, the
next 20 % for validation, the last 20 % for testing. What comes out of the subset, positives and negatives:

                           train           validation    test
    Words()                5,000  45,000    60    540    100   900
    Words(), Whole()                       700    619  1,000   919
    WakeWord("marvin")     1,424  12,816   128  1,152     80   720

Of the 45,000 negatives 3,704 are clips as they are, 36,796 are made from them, and 4,500 are noise.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.datasets.balance import HeldOut, Thinned, check_count, check_seed, draw, measured, training
from penstock.datasets.clip_crops import PARTS, ClipCrop, Noise, Plan, Read, cached, listen
from penstock.datasets.disk import is_file
from penstock.datasets.fetch.addresses import SPEECH_COMMANDS_1, SPEECH_COMMANDS_2
from penstock.datasets.fetch.completeness import check_listed
from penstock.datasets.fetch.places import find, look
from penstock.datasets.sounds import RATE_HZ, Archive, AudioStore, Folder, decode, joined, noise_span
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.streaming.features import Mfcc

LENGTH = RATE_HZ
"""Samples of a take: 1 s."""

NOISE_FOLDER = "_background_noise_"
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
ZIPS = ("train.zip", "validation.zip", "test.zip", "background_noise.zip")


@dataclass(frozen=True)
class Words:
    """Tell these words apart: labels 1, 2, ... in this order."""

    words: tuple[str, ...] = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


@dataclass(frozen=True)
class WakeWord:
    """Hear one word: label 1."""

    word: str = "marvin"

    @property
    def words(self) -> tuple[str, ...]:
        """The word alone."""
        return (self.word,)


KeywordTask: TypeAlias = Words | WakeWord


def speech_commands(
    folder: str | Path | None = None,
    *,
    task: KeywordTask = Words(),
    negatives_per_positive: int = 9,
    train_positives_per_word: int | None = None,
    held_out: HeldOut = Thinned(),
    features: Mfcc = Mfcc(),
    seed: int = 0,
    subset: bool = False,
    cache: str | Path | None = None,
) -> Splits:
    """Read Speech Commands as features for 1-D networks.

    Args:
        folder: where the release or the subset is; by default where `penstock.datasets.fetch.places` looks.
        task: which words are of interest.
        negatives_per_positive: the ratio, in each part.
        train_positives_per_word: train with at most so many clips for each word of interest; None for all.
        held_out: how validation and test are chosen.
        features: what to compute, at 16 kHz.
        seed: another seed draws other clips where not all are taken, other shifts and other noise.
        subset: let the release lack clips that its lists name. Zips are a subset anyway.
        cache: a folder that keeps computed features; None to compute them each time.

    Returns:
        x is (n, coefficients, frames), standardised with the training part; y is 0 for the background, then the words.

    Raises:
        DataError: when the data set is missing, damaged or not the official one, or an argument makes no sense.
    """
    check_count("negatives_per_positive", negatives_per_positive)
    check_count("train_positives_per_word", train_positives_per_word)
    check_seed(seed)
    at = _find(folder)
    class_names = ("background", *task.words)
    with opened(at, task.words, subset=subset) as (words, noises, read, where):

        def make() -> Splits:
            lengths = {name: len(read(name)) for name in noises}
            plan = _plan(words, lengths, task, negatives_per_positive, train_positives_per_word, held_out, seed)
            return listen(plan, read, class_names, length=LENGTH, spec=features)

        stamps = sorted((name, shelf.stamps[name]) for name, shelf in where.items())
        asked = (task, negatives_per_positive, train_positives_per_word, held_out, features, seed, words, stamps)
        return cached(cache, "speech_commands", asked, class_names, make)


Clips: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]  # part -> word -> names


class Opened(NamedTuple):
    """A data set whose archives are open.

    Attributes:
        clips: part -> word -> names.
        noises: names.
        read: gives the samples of a name.
        where: the shelf of each name.
    """

    clips: Clips
    noises: Sequence[str]
    read: Read
    where: Mapping[str, AudioStore]


@contextmanager
def opened(at: Path, wanted: Sequence[str], *, subset: bool = False) -> Iterator[Opened]:
    """Open the release or the subset at a folder, shared out by its lists, with these words in each part."""
    with ExitStack() as stack:
        shelves, listed = _shelves(at, stack), _listed(at)
        where = joined(shelves)
        if isinstance(shelves[0], Folder) and not subset:
            _check_whole(where, listed, at)
        words, noises = _share_out(where, listed, at)
        _check_words(wanted, words, at)
        yield Opened(words, noises, lambda name: decode(where[name].read(name), f"{name} in {at}"), where)


def _plan(
    clips: Clips, noise: Mapping[str, int], task: KeywordTask, ratio: int, cap: int | None, how: HeldOut, seed: int
) -> Plan:
    """Write down every take of every part."""
    plan = {}
    for part in PARTS:
        spans = {name: noise_span(samples, part, LENGTH) for name, samples in noise.items()}
        spans = {name: span for name, span in spans.items() if span}
        if not spans:
            raise DataError(f"the noises leave no second for {part}: put files of 5 s or more into {NOISE_FOLDER}.")
        positives = [[ClipCrop(label, clip) for clip in clips[part][word]] for label, word in enumerate(task.words, 1)]
        others = [ClipCrop(0, clip) for word, names in clips[part].items() if word not in task.words for clip in names]
        if part == "train":
            chosen = [take for takes in positives for take in (draw(takes, cap, seed) if cap else takes)]
            plan[part] = training(chosen, others, spans, ratio=ratio, length=LENGTH, seed=seed)
        else:
            windows = [ClipCrop(0, noise=Noise(name, at, 1.0)) for name, span in spans.items() for at in span[::LENGTH]]
            plan[part] = measured(positives, others + windows, how, ratio=ratio, seed=seed, part=part)
    return plan


def _find(folder: str | Path | None) -> Path:
    found = look(SPEECH_COMMANDS_2, folder) or look(SPEECH_COMMANDS_1, folder) or find(SPEECH_COMMANDS_2, folder)
    return found.at


def _shelves(at: Path, stack: ExitStack) -> list[AudioStore]:
    zips = [name for name in ZIPS if is_file(at / name)]
    if zips and len(zips) < len(ZIPS):
        missing = [name for name in ZIPS if name not in zips]
        raise DataError(f"{at} lacks {', '.join(missing)}: it takes all of {', '.join(ZIPS)}.")
    return [stack.enter_context(Archive(at / name)) for name in zips] if zips else [Folder.open(at)]


def _listed(at: Path) -> dict[str, str]:
    """Return the part of each clip that the official lists name, without its ending."""
    return {name.rpartition(".")[0]: part for part, file in LISTS.items() for name in _names(at / file)}


def _check_whole(where: Mapping[str, AudioStore], listed: Mapping[str, str], at: Path) -> None:
    """Refuse a release that was unpacked in part; its lists name .wav files."""
    there = {f"{name.rpartition('.')[0]}.wav" for name in where}
    advice = "Unpack its archive again, or give subset=True to read what is there."
    check_listed(at, [f"{name}.wav" for name in listed], there, advice)


def _share_out(where: Mapping[str, AudioStore], listed: Mapping[str, str], at: Path) -> tuple[Clips, list[str]]:
    """Return the clips as part -> word -> names, by the official lists; and the names of the noises."""
    clips: dict[str, dict[str, list[str]]] = {part: {} for part in PARTS}
    noises: list[str] = []
    part_of: dict[str, str] = {}
    for name in sorted(where):
        word, _, file = name.rpartition("/")
        if word == NOISE_FOLDER:
            noises.append(name)
            continue
        part = listed.get(name.rpartition(".")[0], "train")
        clips[part].setdefault(word, []).append(name)
        speaker = file.partition("_nohash_")[0]
        if part_of.setdefault(speaker, part) != part:
            raise DataError(
                f"the speaker {speaker} is in {part_of[speaker]} and, with {name}, in {part}: the lists in {at} are "
                "not those of this release. Take them from its archive."
            )
    return clips, noises


def _names(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{file} is not a list of names ({error}): take it from the release's archive.") from error


def _check_words(words: Sequence[str], clips: Clips, at: Path) -> None:
    known = sorted({word for part in PARTS for word in clips[part]})
    for word in words:
        if word not in known:
            close = difflib.get_close_matches(word, known, n=3)
            hint = f"Close: {', '.join(close)}. " if close else ""
            raise DataError(f"no clip of the word '{word}' is in {at}. {hint}There are: {', '.join(known)}.")
    if not words or len(set(words)) != len(words):
        raise DataError(f"the words of interest are {', '.join(words) or 'none'}: name at least one, each once.")
    for part in PARTS:
        if missing := set(words) - set(clips[part]):
            raise DataError(f"{at} has no clip of {', '.join(sorted(missing))} for {part}: choose other words.")
        if not set(clips[part]) - set(words):
            raise DataError(f"{at} has no clip of another word for {part}: leave a word for the background.")
