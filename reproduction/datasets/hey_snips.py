"""Hey Snips: a wake word and other speech of the same speakers and rooms, on request and for research only.

Coucke et al., arXiv:1811.07684, and Leroy et al., arXiv:1810.05512, whose set is the paper's "Keyword Spotting". Both
have one layout: ``train.json``, ``dev.json`` and ``test.json``, each a list of clips with ``id``, ``is_hotword`` (0 or
1), ``worker_id``, ``duration`` in seconds and ``audio_file_path``, beside the folder ``audio_files`` of .wav files. The
publishers made the parts; they are kept as they are, and dev is called validation here.

Clips have all lengths, a network has one: ``window_s``. A longer positive loses as much at its beginning as at its
end. A shorter one is followed by silence, and there lies a trap: if negatives were cut into full windows, silence at
the end would give a positive away. So a negative is cut into windows, and of each only the beginning is heard, as
long as some positive of the same part. The ratio is exact in each part (`penstock.datasets.balance`): there are enough
windows, so nothing is made, and the larger side is thinned.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.datasets.balance import HeldOut, Thinned, check_count, check_seed, draw, measured
from penstock.datasets.clip_crops import PARTS, ClipCrop, Plan, cached, listen, window_samples
from penstock.datasets.disk import read_text, stamp
from penstock.datasets.fetch.addresses import HEY_SNIPS
from penstock.datasets.fetch.places import find
from penstock.datasets.sounds import RATE_HZ, Samples, read_clip
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.streaming.features import Mfcc

FILES = dict(zip(PARTS, ("train.json", "dev.json", "test.json"), strict=True))

CLASS_NAMES = ("background", "hey snips")

SLACK_S = 0.1
"""How far the duration in a list may be from that of the file."""


class Clip(NamedTuple):
    """An entry of a list: the file's path in the data set, its length, and whether it is the wake word."""

    path: str
    samples: int
    is_hotword: bool


def hey_snips(
    folder: str | Path | None = None,
    *,
    negatives_per_positive: int = 9,
    train_positives: int | None = None,
    held_out: HeldOut = Thinned(),
    window_s: float = 2.5,
    features: Mfcc = Mfcc(),
    seed: int = 0,
    cache: str | Path | None = None,
) -> Splits:
    """Read Hey Snips as features for 1-D networks.

    Args:
        folder: where the three lists are; by default where `penstock.datasets.fetch.places` looks.
        negatives_per_positive: the ratio, in each part.
        train_positives: train with at most so many clips of the wake word; None for all.
        held_out: how validation and test are chosen.
        window_s: the length of each sample.
        features: what to compute, at 16 kHz.
        seed: another seed draws other clips where not all are taken.
        cache: a folder that keeps computed features; None to compute them each time.

    Returns:
        x is (n, coefficients, frames), standardised with the training part; y is 1 for the wake word.

    Raises:
        DataError: when the data set is missing or damaged, or an argument makes no sense.
    """
    check_count("negatives_per_positive", negatives_per_positive)
    check_count("train_positives", train_positives)
    check_seed(seed)
    length = window_samples(window_s, features)
    at = find(HEY_SNIPS, folder).at
    clips = {part: read_list(at / name) for part, name in FILES.items()}
    samples_of = {clip.path: clip.samples for part in PARTS for clip in clips[part]}
    how = {"train": Thinned(train_positives), "validation": held_out, "test": held_out}

    def read(path: str) -> Samples:
        samples = read_clip(at / path)
        lasts, listed = len(samples) / RATE_HZ, samples_of[path] / RATE_HZ
        if abs(lasts - listed) > SLACK_S:
            raise DataError(
                f"{at / path} lasts {lasts:.2f} s, and the list says {listed:.2f} s: unpack the data set again."
            )
        return samples

    def make() -> Splits:
        plan: Plan = {
            part: measured(
                [[_middle(clip, length) for clip in clips[part] if clip.is_hotword]],
                _cut(clips[part], length, seed),
                how[part],
                ratio=negatives_per_positive,
                seed=seed,
                part=part,
            )
            for part in PARTS
        }
        return listen(plan, read, CLASS_NAMES, length=length, spec=features)

    stamps = [(path, stamp(at / path)) for path in samples_of]
    asked = (clips, stamps, negatives_per_positive, how, length, features, seed)
    return cached(cache, "hey_snips", asked, CLASS_NAMES, make)


def read_list(file: Path) -> list[Clip]:
    """Read one of the three lists.

    Raises:
        DataError: when it is not in the official layout, or has only one kind of clips.
    """
    try:
        entries = json.loads(read_text(file))
        clips = [_clip(entry) for entry in entries]
    except (ValueError, TypeError, KeyError) as error:  # a JSON error is a ValueError
        raise DataError(
            f"{file} is not a list of clips with is_hotword (0 or 1), duration and audio_file_path ({error!r}): unpack "
            "the data set again."
        ) from error
    for is_hotword, kind in ((True, "the wake word"), (False, "other speech")):
        if not any(clip.is_hotword == is_hotword for clip in clips):
            raise DataError(f"{file} has no clip of {kind}: unpack the data set again.")
    return clips


def _clip(entry: dict[str, object]) -> Clip:
    path, duration, is_hotword = entry["audio_file_path"], entry["duration"], entry["is_hotword"]
    if not isinstance(path, str) or not isinstance(duration, int | float) or is_hotword not in (0, 1):
        raise ValueError(f"an entry {entry}")
    if not 0 < duration < float("inf"):
        raise ValueError(f"a duration of {duration}")
    return Clip(path, round(duration * RATE_HZ), bool(is_hotword))


def _middle(clip: Clip, length: int) -> ClipCrop:
    return ClipCrop(1, clip.path, start=max(0, (clip.samples - length) // 2))


def _cut(clips: Sequence[Clip], length: int, seed: int) -> list[ClipCrop]:
    """Cut the negatives into windows, each heard for as long as one of the positives lasts."""
    lengths = draw([min(clip.samples, length) for clip in clips if clip.is_hotword], None, seed)
    takes: list[ClipCrop] = []
    for clip in (clip for clip in clips if not clip.is_hotword):
        for start in range(0, clip.samples, length):
            heard = lengths[len(takes) % len(lengths)]
            if start == 0 or start + heard <= clip.samples:
                takes.append(ClipCrop(0, clip.path, start, heard))
    return takes
