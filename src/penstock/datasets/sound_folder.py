"""Any folder of sounds: ``root/class/*.wav`` or ``*.flac``, mono, 16 kHz, 16 bits.

With folders ``train`` and ``test``, and perhaps ``validation`` (or ``val``), each of which has the classes, those
are the parts. Without them a share of each class's clips is held out. That keeps clips apart, not speakers: where a
speaker, a room or a device is heard in several clips, a random share measures how well they are known by heart. Then
give parts of your own, with nobody in two of them.

Clips have all lengths, a network has one: ``window_s``. A longer clip loses as much at its beginning as at its end. A
shorter one is followed by silence, so record all classes alike: if the clips of one class alone are short, silence
gives it away.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.datasets.class_folders import Files, HoldOut, Kind, class_names, count_files, label_of, parts_in
from penstock.datasets.clip_crops import ClipCrop, cached, listen, window_samples
from penstock.datasets.disk import stamp
from penstock.datasets.sounds import SUFFIXES, Samples, middle, read_clip
from penstock.datasets.splits import Splits
from penstock.runtime.streaming.features import Mfcc

SOUNDS = Kind("sounds", SUFFIXES)


def sound_folder(
    root: str | Path,
    *,
    positives: Sequence[str] | None = None,
    window_s: float = 1.0,
    features: Mfcc = Mfcc(),
    hold_out: HoldOut = HoldOut(),
    cache: str | Path | None = None,
) -> Splits:
    """Read the sounds of a folder as features for 1-D networks; all of them are in memory.

    Args:
        root: has a folder for each class; or ``train``, ``test`` and perhaps ``validation`` that have them.
        positives: the classes of interest, labels 1, 2, ...; all others are the background. By default the paper's
            mapping: of the sorted classes, the first, third, fifth and so on.
        window_s: the length of each sample: the middle of a longer clip, or a shorter one with silence after it.
        features: what to compute, at 16 kHz.
        hold_out: the shares held out where the folder has no parts of its own. It does not keep speakers apart.
        cache: a folder that keeps computed features; None to compute them each time.

    Returns:
        x is (n, coefficients, frames), standardised with the training part; y is 0 for the background, then the
        positives. Class by class, sorted by name.

    Raises:
        DataError: when there are no sounds, a class of a part is unknown or empty, a clip is damaged or in another
            format, or an argument makes no sense.
    """
    root, length = Path(root).expanduser(), window_samples(window_s, features)
    parts = parts_in(root, SOUNDS, hold_out)
    labels = label_of(tuple(parts["train"]), positives)
    names = class_names(labels)
    plan = {part: _takes(root, files, labels) for part, files in parts.items()}

    def read(clip: str) -> Samples:
        return middle(read_clip(root / clip), length)

    stamps = [stamp(file) for files in parts.values() for inside in files.values() for file in inside]
    asked = (plan, stamps, length, features)
    return cached(cache, "sound_folder", asked, names, lambda: listen(plan, read, names, length=length, spec=features))


def count_sounds(root: str | Path) -> dict[str, dict[str, int]]:
    """Decode every clip of a folder, and return how many each part and each class of it has.

    Raises:
        DataError: when the folder is not in order, or clips are damaged or in another format; names them.
    """
    return count_files(Path(root).expanduser(), SOUNDS, read_clip)


def _takes(root: Path, files: Files, labels: dict[str, int]) -> list[ClipCrop]:
    return [ClipCrop(labels[name], str(file.relative_to(root))) for name, inside in files.items() for file in inside]
