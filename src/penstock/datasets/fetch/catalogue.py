"""The data sets that Penstock knows: what they are, whether they are on this machine, how to get and to check them.

`DATA_SETS` is the one table of what is published, `FOLDERS` of the kinds of folders that anybody may have. Loaders
stand in them by name and are imported when they are used, so that the list works whatever is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.datasets.fetch import addresses, places
from penstock.datasets.fetch.completeness import (
    Completeness,
    HasClips,
    HasListedFiles,
    HasPhotographs,
    Loads,
    function_of,
)
from penstock.datasets.fetch.download import Checksum
from penstock.datasets.fetch.places import Found, Wanted
from penstock.datasets.fetch.sources import NpmPackage, OfficialFiles
from penstock.errors import DataError


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue.

    Attributes:
        description: one line.
        licence: its name, or what it allows.
        size: what it takes on the disk.
        loader: the function that reads it, as package.module:function.
        wanted: its forms and sources.
        whole: what it takes for it to be complete, where that can be seen quickly; by default, that its loader reads
            it.
    """

    description: str
    licence: str
    size: str
    loader: str
    wanted: Wanted
    whole: Completeness | None = None


_SPEECH = "penstock.datasets.speech_commands:speech_commands"

_ENTRIES = (
    Entry(
        "70,000 grey images of clothes, 28x28",
        "MIT",
        "31 MB",
        "reproduction.datasets.fashion_mnist:fashion_mnist",
        addresses.FASHION_MNIST,
    ),
    Entry(
        "60,000 colour images of 10 kinds, 32x32",
        "none stated",
        "139 MB",
        "reproduction.datasets.cifar10:cifar10",
        addresses.CIFAR10,
    ),
    Entry(
        "1.3 million photographs of 1,000 kinds",
        "research only",
        "145 GB",
        "reproduction.datasets.imagenet:imagenet",
        addresses.IMAGENET,
        HasPhotographs(train=1_281_167, test=50_000, synsets=1000),
    ),
    Entry(
        "65,000 spoken words of 30, 1 s each",
        "CC BY 4.0",
        "2.1 GB",
        _SPEECH,
        addresses.SPEECH_COMMANDS_1,
        HasClips(64_721),
    ),
    Entry(
        "106,000 spoken words of 35, 1 s each",
        "CC BY 4.0",
        "3.4 GB",
        _SPEECH,
        addresses.SPEECH_COMMANDS_2,
        HasClips(105_829),
    ),
    Entry(
        "the wake word Hey Snips and other speech",
        "research only",
        "unknown",
        "reproduction.datasets.hey_snips:hey_snips",
        addresses.HEY_SNIPS,
        HasListedFiles(),
    ),
    Entry(
        "81 minutes of 7 exercises, 6 axes, 50 Hz",
        "BSD",
        "18 MB",
        "penstock.datasets.wrist:wrist",
        addresses.WRIST,
    ),
)

DATA_SETS: dict[str, Entry] = {entry.wanted.name: entry for entry in _ENTRIES}


@dataclass(frozen=True)
class OwnFolder:
    """A kind of folder that anybody may have: in it a folder of files for each class.

    Attributes:
        files: what its files are.
        loader: the function that reads it, as package.module:function.
        count: the function that reads every file and returns how many each part and each class has, likewise.
    """

    files: str
    loader: str
    count: str


FOLDERS: dict[str, OwnFolder] = {
    "image-folder": OwnFolder(
        "pictures", "penstock.datasets.image_folder:image_folder", "penstock.datasets.image_folder:count_pictures"
    ),
    "sound-folder": OwnFolder(
        "sounds", "penstock.datasets.sound_folder:sound_folder", "penstock.datasets.sound_folder:count_sounds"
    ),
}


@dataclass(frozen=True)
class Row:
    """A line of the listing; ``found`` is the folder or archive, None where there is none."""

    name: str
    description: str
    licence: str
    size: str
    found: str | None
    get: str


@dataclass(frozen=True)
class Checked:
    """A data set that is what it should be, and how many samples each part has.

    Attributes:
        name: of the data set, or of the kind of folder.
        found: where it is.
        samples: of each part.
        classes: of each class of each part; None for a published data set.
    """

    name: str
    found: str
    samples: dict[str, int]
    classes: dict[str, dict[str, int]] | None = None


def listing() -> list[Row]:
    """Say of each data set what it is, where it is on this machine, and how to get it."""
    return [_row(entry) for entry in DATA_SETS.values()]


def fetch(name: str, *, progress: bool = False) -> Found:
    """Return where a data set is, after downloading it into the cache if it is nowhere yet.

    Raises:
        DataError: when the name is unknown, none of the sources gave it, or what is there is not whole, as far as that
            can be seen quickly.
        StorageError: when it could not be written.
    """
    entry = entry_of(name)
    found = places.fetch(entry.wanted, progress=progress)
    if entry.whole is not None:
        entry.whole.count(found.at)
    return found


def check(name: str, folder: str | Path | None = None) -> Checked:
    """See whether a data set is whole: its archive's checksum, its files, what its loader says.

    Args:
        name: of a data set; or of a kind of folder, every file of which is then read.
        folder: where it is; by default wherever its loader finds it.

    Raises:
        DataError: when it is not there, or not what it should be.
    """
    if name in FOLDERS:
        return _check_own(name, folder)
    entry = entry_of(name)
    found = places.find(entry.wanted, folder)
    checksum = _archives(entry.wanted).get(found.at.name)
    if checksum is not None:
        checksum.check(found.at)
    whole = entry.whole or Loads(entry.loader)
    return Checked(name, str(found.at), whole.count(found.at))


def entry_of(name: str) -> Entry:
    """Return the entry of a name.

    Raises:
        DataError: when there is none, or it is a kind of folder.
    """
    if name in FOLDERS:
        raise DataError(
            f"{name} is any folder of yours that has {FOLDERS[name].files}, so there is nothing to fetch. What can "
            "be fetched: penstock data list."
        )
    if name not in DATA_SETS:
        raise DataError(f"there is no data set {name!r}; known are {', '.join((*DATA_SETS, *FOLDERS))}.")
    return DATA_SETS[name]


def _check_own(name: str, folder: str | Path | None) -> Checked:
    if folder is None:
        raise DataError(
            f"{name} is any folder of yours that has a folder of {FOLDERS[name].files} for each class: say which, as "
            f"in `penstock data check {name} --folder FOLDER`."
        )
    classes: dict[str, dict[str, int]] = function_of(FOLDERS[name].count)(folder)
    return Checked(name, str(folder), {part: sum(counts.values()) for part, counts in classes.items()}, classes)


def _row(entry: Entry) -> Row:
    get = entry.wanted.advice
    try:
        found = places.look(entry.wanted)
    except DataError as error:  # a place that one may not look into; the list goes on
        found, get = None, str(error)
    where = None if found is None else str(found.at)
    return Row(entry.wanted.name, entry.description, entry.licence, entry.size, where, get)


def _archives(wanted: Wanted) -> dict[str, Checksum]:
    """Return the checksums of the archives that a data set is read from."""
    known = {}
    for source in wanted.sources:
        if isinstance(source, NpmPackage):
            known[f"{source.name}-{source.version}.tgz"] = source.checksum
        elif isinstance(source, OfficialFiles):
            known |= {one.file: one.checksum for one in source.downloads}
    return known
