"""All sources of sound: requests out of range, missing extras, imports."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.sound_files import RATE, noise, wav
from penstock.errors import DataError, MissingExtraError
from penstock.runtime.audio.file import recording
from penstock.runtime.audio.microphone import microphone
from penstock.runtime.audio.resampling import Block
from penstock.runtime.audio.stdin import pipe


def test_rates_and_blocks_that_nobody_can_want_are_refused(tmp_path: Path) -> None:
    for make in (lambda *a: recording(tmp_path, *a), lambda *a: pipe(io.BytesIO(), a[0], RATE, 1, a[1]), record):
        with pytest.raises(DataError, match=r"1000 to 768000 Hz, got 0"):
            next(make(0, 1600))
        with pytest.raises(DataError, match=r"block.*at least 1.*got 0"):
            next(make(RATE, 0))


def record(rate: int, block: int) -> Iterator[Block]:
    return microphone(rate, None, block)


@pytest.mark.parametrize(
    ("module", "extra", "start"),
    [
        ("soundfile", "listen", lambda file: recording(file, RATE)),
        ("soxr", "listen", lambda file: recording(file, 8000)),
        ("soxr", "listen", lambda file: pipe(io.BytesIO(bytes(100)), RATE, 8000)),
        ("sounddevice", "microphone", lambda file: microphone(RATE)),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    extra: str,
    start: Callable[[Path], Iterator[Block]],
) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(100)))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"^{module} is not installed: pip install 'penstock\[{extra}\]'"):
        next(start(tmp_path / "a.wav"))


def test_a_device_needs_numpy_alone_until_it_listens() -> None:
    modules = ", ".join(f"penstock.runtime.audio.{name}" for name in ("file", "stdin", "microphone"))
    code = f"import sys, {modules}; print({{'torch', 'soundfile', 'soxr', 'sounddevice'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
