"""Hey Snips: a wake word and other speech by the same speakers; on request, for research only.

Coucke et al., arXiv:1811.07684, and Leroy et al., arXiv:1810.05512, whose set is the paper's "Keyword Spotting". Both
have one layout: ``train.json``, ``dev.json`` and ``test.json``, each a list of clips with ``id``, ``is_hotword`` (0 or
1), ``worker_id``, ``duration`` in seconds and ``audio_file_path``, beside the folder ``audio_files`` of .wav files. The
publishers' splits are used; dev is the validation split.

Clips differ in length, but a network has one: ``window_s``. A longer positive is trimmed equally at both ends. A
shorter one is followed by silence. If negatives were cut into full windows, that silence would give the positives away.
So negatives are cut into windows, and each window keeps only its beginning, as long as some positive of the same split.
The ratio is exact in each split (`reproduction.datasets.balance`): there are enough windows, so nothing is added and
the larger side is subsampled.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.datasets.audio_clips import PARTS, RATE_HZ, Samples, read_clip
from penstock.datasets.fetch.locations import find_dataset
from penstock.datasets.files import file_stamp, read_text
from penstock.datasets.sound_files import cached_splits, window_samples
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.streaming.features import Mfcc
from reproduction.datasets.balance import Balance, Thinned, check_seed, draw, measured_crops
from reproduction.datasets.catalogue import HEY_SNIPS
from reproduction.datasets.clip_crops import ClipCrop, Plan, render_features

FILES = dict(zip(PARTS, ("train.json", "dev.json", "test.json"), strict=True))

CLASS_NAMES = ("background", "hey snips")

SLACK_S = 0.1
"""Largest difference between the duration in a list and that of the file."""


class Clip(NamedTuple):
    """A list entry: path of the file in the data set, its length, and whether it is the wake word."""

    path: str
    samples: int
    is_hotword: bool


def hey_snips(
    folder: str | Path | None = None,
    *,
    balance: Balance = Balance(),
    window_s: float = 2.5,
    features: Mfcc = Mfcc(),
    seed: int = 0,
    cache: str | Path | None = None,
) -> Splits:
    """Load Hey Snips as features for 1-D networks.

    Args:
        folder: has the three lists; default: the cache.
        balance: how many positives and negatives.
        window_s: length of each sample.
        features: what to compute, at 16 kHz.
        seed: another seed draws other clips where not all are used.
        cache: a folder for computed features; None to compute them each time.

    Returns:
        x is (n, coefficients, frames), standardised with the training split; y is 1 for the wake word.

    Raises:
        DataError: if the data set is missing or damaged, or an argument is invalid.
    """
    check_seed(seed)
    length = window_samples(window_s, features)
    root = find_dataset(HEY_SNIPS, folder).path
    clips = {part: read_list(root / name) for part, name in FILES.items()}
    samples_of = {clip.path: clip.samples for part in PARTS for clip in clips[part]}
    held_out = dict.fromkeys(PARTS, balance.held_out) | {"train": Thinned(balance.train_positives_per_word)}

    def read(path: str) -> Samples:
        samples = read_clip(root / path)
        actual, listed = len(samples) / RATE_HZ, samples_of[path] / RATE_HZ
        if abs(actual - listed) > SLACK_S:
            raise DataError(
                f"expected {listed:.2f} s of audio in {root / path}, got {actual:.2f} s: unpack the data set again."
            )
        return samples

    def compute() -> Splits:
        plan: Plan = {
            part: measured_crops(
                [[_middle(clip, length) for clip in clips[part] if clip.is_hotword]],
                _cut(clips[part], length, seed),
                held_out[part],
                ratio=balance.negatives_per_positive,
                seed=seed,
                part=part,
            )
            for part in PARTS
        }
        return render_features(plan, read, CLASS_NAMES, length=length, spec=features)

    stamps = [(path, file_stamp(root / path)) for path in samples_of]
    request = (clips, stamps, balance, length, features, seed)
    return cached_splits(cache, "hey_snips", request, CLASS_NAMES, compute)


def read_list(file: Path) -> list[Clip]:
    """Read one of the three lists.

    Raises:
        DataError: if it is not in the official layout, or lacks positives or negatives.
    """
    try:
        entries = json.loads(read_text(file))
        clips = [_clip(entry) for entry in entries]
    except (ValueError, TypeError, KeyError) as error:  # a JSON error is a ValueError
        raise DataError(
            f"expected a list of clips with is_hotword (0 or 1), duration and audio_file_path in {file} ({error!r}): "
            "unpack the data set again."
        ) from error
    for is_hotword, kind in ((True, "the wake word"), (False, "other speech")):
        if not any(clip.is_hotword == is_hotword for clip in clips):
            raise DataError(f"{file} has no clips of {kind}: unpack the data set again.")
    return clips


def _clip(entry: dict[str, object]) -> Clip:
    path, duration, is_hotword = entry["audio_file_path"], entry["duration"], entry["is_hotword"]
    if not isinstance(path, str) or not isinstance(duration, int | float) or is_hotword not in (0, 1):
        raise ValueError(f"invalid entry {entry}")
    if not 0 < duration < float("inf"):
        raise ValueError(f"invalid duration {duration}")
    return Clip(path, round(duration * RATE_HZ), bool(is_hotword))


def _middle(clip: Clip, length: int) -> ClipCrop:
    return ClipCrop(1, clip.path, start=max(0, (clip.samples - length) // 2))


def _cut(clips: Sequence[Clip], length: int, seed: int) -> list[ClipCrop]:
    """Cut the negatives into windows, each as long as one of the positives."""
    lengths = draw([min(clip.samples, length) for clip in clips if clip.is_hotword], None, seed)
    crops: list[ClipCrop] = []
    for clip in (clip for clip in clips if not clip.is_hotword):
        for start in range(0, clip.samples, length):
            kept = lengths[len(crops) % len(lengths)]
            if start == 0 or start + kept <= clip.samples:
                crops.append(ClipCrop(0, clip.path, start, kept))
    return crops
