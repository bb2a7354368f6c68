"""Speech Commands, as published: its clips by split and word, and its background noise.

P. Warden, arXiv:1804.03209, CC BY 4.0. Two layouts are read: the official release, v0.01 or v0.02, unpacked (a
folder of .wav files per word, ``_background_noise_``, two lists), and a subset of it, as zips of .flac files beside the
same lists. The lists name the validation and the test clips; all others are training clips. A release must have every
clip that the lists name; a subset need not. Every speaker is in one split only, which is checked.
"""

import difflib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from penstock.datasets.audio_clips import PARTS, SUFFIXES, Samples, decode_clip
from penstock.datasets.fetch.completeness import check_listed
from penstock.datasets.files import file_stamp, is_file, read_bytes, read_text, reading
from penstock.errors import DataError

NOISE_FOLDER = "_background_noise_"
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
ZIPS = ("train.zip", "validation.zip", "test.zip", "background_noise.zip")


class AudioStore(Protocol):
    """A collection of sound files."""

    @property
    def stamps(self) -> Mapping[str, str]:
        """The name of each sound file, and a string that changes when the file does."""

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""


@dataclass(frozen=True)
class FolderStore:
    """The sound files in the sub-folders of a folder; names are ``folder/file.wav``."""

    path: Path
    stamps: Mapping[str, str]

    @classmethod
    def open(cls, path: Path) -> "FolderStore":
        """List the files without reading them."""
        with reading(path):
            files = [file for inner in sorted(path.iterdir()) if inner.is_dir() for file in sorted(inner.iterdir())]
        sounds = (file for file in files if file.suffix in SUFFIXES)
        return cls(path, {f"{file.parent.name}/{file.name}": file_stamp(file) for file in sounds})

    def read(self, name: str) -> bytes:
        return read_bytes(self.path / name)


class ZipStore:
    """The sound files in a zip, which stays open until it is closed; names are those in the zip."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{path} is not a complete zip file ({error}): fetch it again.") from error
        self.stamps: Mapping[str, str] = {
            entry.filename: f"{entry.file_size} {entry.CRC:08x}"
            for entry in self._zip.infolist()
            if entry.filename.endswith(SUFFIXES)
        }

    def close(self) -> None:
        self._zip.close()

    def read(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:  # RuntimeError: encrypted
            raise DataError(f"{name} in {self.path} is damaged ({error}): fetch the zip again.") from error


Clips: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]  # split -> word -> names


class SpeechCommands(NamedTuple):
    """The data set while its archives are open.

    Attributes:
        clips: names of the clips, by split and word.
        noises: names of the noise recordings.
        read: returns the samples of a clip or a noise by its name.
        stores: the store of each name.
    """

    clips: Clips
    noises: Sequence[str]
    read: Callable[[str], Samples]
    stores: Mapping[str, AudioStore]


@contextmanager
def open_speech_commands(path: Path, words: Sequence[str], *, subset: bool = False) -> Iterator[SpeechCommands]:
    """Open a release or a subset with its official splits.

    Args:
        path: the folder.
        words: must each have clips in every split, and so must some other word.
        subset: allow a release to lack clips that its lists name. Zips are always a subset.

    Raises:
        DataError: if the data set is incomplete or damaged, or lacks a word.
    """
    with ExitStack() as stack:
        opened, listed = _open_stores(path, stack), _part_of_listed(path)
        stores = merge_stores(opened)
        if isinstance(opened[0], FolderStore) and not subset:
            _check_complete(stores, listed, path)
        clips, noises = _split(stores, listed, path)
        _check_words(words, clips, path)
        yield SpeechCommands(
            clips, noises, lambda name: decode_clip(stores[name].read(name), f"{name} in {path}"), stores
        )


def merge_stores(stores: Iterable[AudioStore]) -> dict[str, AudioStore]:
    """Return the store of each sound file.

    Raises:
        DataError: if a name is in two stores.
    """
    merged: dict[str, AudioStore] = {}
    for store in stores:
        for name in store.stamps:
            if name in merged:
                raise DataError(f"{name} is in two of the archives: delete one of them.")
            merged[name] = store
    return merged


def _open_stores(path: Path, stack: ExitStack) -> list[AudioStore]:
    zips = [name for name in ZIPS if is_file(path / name)]
    if zips and len(zips) < len(ZIPS):
        missing = [name for name in ZIPS if name not in zips]
        raise DataError(f"{path} lacks {', '.join(missing)}; a subset needs all of {', '.join(ZIPS)}.")
    return [stack.enter_context(closing(ZipStore(path / name))) for name in zips] if zips else [FolderStore.open(path)]


def _part_of_listed(path: Path) -> dict[str, str]:
    """Return the split of each clip that the official lists name, without its suffix."""
    listed = {part: read_text(path / file).split() for part, file in LISTS.items()}
    return {name.rpartition(".")[0]: part for part, names in listed.items() for name in names}


def _check_complete(stores: Mapping[str, AudioStore], listed: Mapping[str, str], path: Path) -> None:
    """Reject a partly unpacked release; its lists name .wav files."""
    existing = {f"{name.rpartition('.')[0]}.wav" for name in stores}
    advice = "Unpack its archive again, or pass subset=True to read the rest."
    check_listed(path, [f"{name}.wav" for name in listed], existing, advice)


def _split(stores: Mapping[str, AudioStore], listed: Mapping[str, str], path: Path) -> tuple[Clips, list[str]]:
    """Return the clips by split and word, according to the official lists; and the names of the noises."""
    clips: dict[str, dict[str, list[str]]] = {part: {} for part in PARTS}
    noises: list[str] = []
    part_of: dict[str, str] = {}
    for name in sorted(stores):
        word, _, file = name.rpartition("/")
        if word == NOISE_FOLDER:
            noises.append(name)
            continue
        part = listed.get(name.rpartition(".")[0], "train")
        clips[part].setdefault(word, []).append(name)
        speaker = file.partition("_nohash_")[0]
        if part_of.setdefault(speaker, part) != part:
            raise DataError(
                f"speaker {speaker} is in both {part_of[speaker]} and {part} ({name}): the lists in {path} do not "
                "belong to this release. Extract them from its archive."
            )
    return clips, noises


def _check_words(words: Sequence[str], clips: Clips, path: Path) -> None:
    known = sorted({word for part in PARTS for word in clips[part]})
    for word in words:
        if word not in known:
            close = difflib.get_close_matches(word, known, n=3)
            hint = f"Did you mean {' or '.join(close)}? " if close else ""
            raise DataError(f"{path} has no clips of '{word}'. {hint}Its words: {', '.join(known)}.")
    if not words or len(set(words)) != len(words):
        raise DataError(f"expected at least one word, each once, got {', '.join(words) or 'none'}.")
    for part in PARTS:
        if missing := set(words) - set(clips[part]):
            raise DataError(f"{path} has no {part} clips of {', '.join(sorted(missing))}: choose other words.")
        if not set(clips[part]) - set(words):
            raise DataError(f"{path} has no {part} clips of any other word: leave at least one for the background.")
