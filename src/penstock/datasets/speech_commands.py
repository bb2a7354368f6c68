"""Speech Commands, as published: its clips by split and word, and its background noise.

P. Warden, arXiv:1804.03209, CC BY 4.0. Two layouts are read: the official release, v0.01 or v0.02, unpacked (a
folder of .wav files per word, ``_background_noise_``, two lists), and a subset of it, as zips of .flac files beside the
same lists. The lists name the validation and the test clips; all others are training clips. A release must have every
clip that the lists name; a subset need not. Every speaker is in one split only, which is checked.
"""

import difflib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.datasets.audio_clips import PARTS, SUFFIXES, Samples, decode_clip
from penstock.datasets.files import check_listed, file_stamp, is_file, read_bytes, read_text, reading
from penstock.errors import DataError

NOISE_FOLDER = "_background_noise_"
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
ZIPS = ("train.zip", "validation.zip", "test.zip", "background_noise.zip")


class SoundFile(NamedTuple):
    """A file in a folder or a zip: a string that changes when the file does, and a function that reads its bytes."""

    stamp: str
    read: Callable[[], bytes]


Clips: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]  # split -> word -> names


class SpeechCommands(NamedTuple):
    """The data set while its archives are open.

    Attributes:
        clips: names of the clips, by split and word.
        noises: names of the noise recordings.
        read: returns the samples of a clip or a noise by its name.
        stamps: for each name, a string that changes when the file does.
    """

    clips: Clips
    noises: Sequence[str]
    read: Callable[[str], Samples]
    stamps: Mapping[str, str]


def count_clips(path: Path, *, expected: int) -> dict[str, int]:
    """Count the clips of a release in each split; it must have as many as expected, and all that its lists name."""
    if is_file(path / "train.zip"):
        raise DataError(
            f"{path} has train.zip, a subset of Speech Commands; only the official release can be checked, with a "
            "folder of .wav files per word. To fetch the release, move the subset away."
        )
    with reading(path):
        folders = [e for e in os.scandir(path) if e.is_dir() and e.name[0] not in "._"]  # not _background_noise_
        clips = {f"{f.name}/{e.name}" for f in folders for e in os.scandir(f) if e.name.endswith(".wav")}
    lists = read_lists(path)
    check_listed(path, [name for names in lists.values() for name in names], clips, "Delete it and fetch it again.")
    if len(clips) != expected:
        raise DataError(f"expected {expected:,} clips in {path}, found {len(clips):,}. Delete it and fetch it again.")
    held_out = {part: len(names) for part, names in lists.items()}
    return {"train": len(clips) - sum(held_out.values()), **held_out}


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
        files, is_release = _list_files(path, stack)
        listed = {name.rpartition(".")[0]: part for part, names in read_lists(path).items() for name in names}
        if is_release and not subset:
            existing = {f"{name.rpartition('.')[0]}.wav" for name in files}
            advice = "Unpack its archive again, or pass subset=True to read the rest."
            check_listed(path, [f"{name}.wav" for name in listed], existing, advice)
        clips, noises = _split(files, listed, path)
        _check_words(words, clips, path)
        stamps = {name: file.stamp for name, file in files.items()}
        yield SpeechCommands(clips, noises, lambda name: decode_clip(files[name].read(), f"{name} in {path}"), stamps)


def read_lists(path: Path) -> dict[str, list[str]]:
    """Return the clips that the official lists name, for validation and test."""
    return {part: read_text(path / file).split() for part, file in LISTS.items()}


def _list_files(path: Path, stack: ExitStack) -> tuple[dict[str, SoundFile], bool]:
    """Return the sound files by their names, without reading them, and whether they are those of a release."""
    zips = [name for name in ZIPS if is_file(path / name)]
    if not zips:
        return _files_in_folders(path), True
    if len(zips) < len(ZIPS):
        missing = [name for name in ZIPS if name not in zips]
        raise DataError(f"{path} lacks {', '.join(missing)}; a subset needs all of {', '.join(ZIPS)}.")
    files: dict[str, SoundFile] = {}
    for packed in [files_in_zip(path / name, stack) for name in zips]:
        if twice := packed.keys() & files.keys():
            raise DataError(f"{min(twice)} is in two of the archives: delete one of them.")
        files |= packed
    return files, False


def _files_in_folders(path: Path) -> dict[str, SoundFile]:
    with reading(path):
        files = [file for inner in sorted(path.iterdir()) if inner.is_dir() for file in sorted(inner.iterdir())]
    return {
        f"{file.parent.name}/{file.name}": SoundFile(file_stamp(file), partial(read_bytes, file))
        for file in files
        if file.suffix in SUFFIXES
    }


def files_in_zip(path: Path, stack: ExitStack) -> dict[str, SoundFile]:
    """Return the sound files in a zip by their names; they can be read until the stack is closed."""
    try:
        opened = stack.enter_context(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path} is not a complete zip file ({error}): fetch it again.") from error

    def read(name: str) -> bytes:
        try:
            return opened.read(name)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:  # RuntimeError: encrypted
            raise DataError(f"{name} in {path} is damaged ({error}): fetch the zip again.") from error

    return {
        entry.filename: SoundFile(f"{entry.file_size} {entry.CRC:08x}", partial(read, entry.filename))
        for entry in opened.infolist()
        if entry.filename.endswith(SUFFIXES)
    }


def _split(files: Iterable[str], listed: Mapping[str, str], path: Path) -> tuple[Clips, list[str]]:
    """Return the clips by split and word, according to the official lists; and the names of the noises."""
    clips: dict[str, dict[str, list[str]]] = {part: {} for part in PARTS}
    noises: list[str] = []
    part_of: dict[str, str] = {}
    for name in sorted(files):
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
