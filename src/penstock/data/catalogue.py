"""The data sets that Penstock knows: what they are, whether they are on this machine, how to get and to check them.

`DATA_SETS` is the one table. Loaders stand in it by name and are imported when they are used, so that the list works
whatever is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.data import addresses, places
from penstock.data.completeness import Completeness, HasClips, HasListedFiles, Loads
from penstock.data.download import Checksum
from penstock.data.places import Found, Wanted
from penstock.data.sources import NpmPackage, OfficialFiles
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
        whole: what it takes for it to be complete; by default, that its loader reads it.
    """

    description: str
    licence: str
    size: str
    loader: str
    wanted: Wanted
    whole: Completeness | None = None


_SPEECH = "penstock.data.speech_commands:speech_commands"

_ENTRIES = (
    Entry(
        "70,000 grey images of clothes, 28x28",
        "MIT",
        "31 MB",
        "penstock.data.fashion_mnist:fashion_mnist",
        addresses.FASHION_MNIST,
    ),
    Entry(
        "60,000 colour images of 10 kinds, 32x32",
        "none stated",
        "139 MB",
        "penstock.data.cifar10:cifar10",
        addresses.CIFAR10,
    ),
    Entry(
        "1.3 million photographs of 1,000 kinds",
        "research only",
        "145 GB",
        "penstock.data.imagenet:imagenet",
        addresses.IMAGENET,
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
        "penstock.data.hey_snips:hey_snips",
        addresses.HEY_SNIPS,
        HasListedFiles(),
    ),
    Entry(
        "81 minutes of 7 exercises, 6 axes, 50 Hz",
        "BSD",
        "18 MB",
        "penstock.data.wrist:wrist",
        addresses.WRIST,
    ),
)

DATA_SETS: dict[str, Entry] = {entry.wanted.name: entry for entry in _ENTRIES}


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
    """A data set that is what it should be, and how many samples each part has."""

    name: str
    found: str
    samples: dict[str, int]


def listing() -> list[Row]:
    """Say of each data set what it is, where it is on this machine, and how to get it."""
    return [_row(entry) for entry in DATA_SETS.values()]


def fetch(name: str, *, progress: bool = False) -> Found:
    """Return where a data set is, after downloading it into the cache if it is nowhere yet.

    Raises:
        DataError: when the name is unknown, or none of the sources gave it.
        StorageError: when it could not be written.
    """
    return places.fetch(entry_of(name).wanted, progress=progress)


def check(name: str, folder: str | Path | None = None) -> Checked:
    """See whether a data set is whole: its archive's checksum, its files, what its loader says.

    Raises:
        DataError: when it is not there, or not what it should be.
    """
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
        DataError: when there is none.
    """
    if name not in DATA_SETS:
        raise DataError(f"there is no data set {name!r}; known are {', '.join(DATA_SETS)}.")
    return DATA_SETS[name]


def _row(entry: Entry) -> Row:
    found = places.look(entry.wanted)
    where = None if found is None else str(found.at)
    return Row(entry.wanted.name, entry.description, entry.licence, entry.size, where, entry.wanted.advice)


def _archives(wanted: Wanted) -> dict[str, Checksum]:
    """Return the checksums of the archives that a data set is read from."""
    known = {}
    for source in wanted.sources:
        if isinstance(source, NpmPackage):
            known[f"{source.name}-{source.version}.tgz"] = source.checksum
        elif isinstance(source, OfficialFiles):
            known |= {one.file: one.checksum for one in source.downloads}
    return known
