"""Data sets with something that cannot be read: a folder where a file is expected, or a file without permission."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.errors import DataError

SCRIPT = """
import os, sys, traceback
from pathlib import Path
from penstock.errors import PenstockError

{setup}
if os.geteuid() == 0:  # root may read everything
    os.setuid(65_534)
os.environ["PENSTOCK_DATA"] = "locked"
attempts = {{{attempts}}}
for name, attempt in attempts.items():
    try:
        attempt()
        print(f"{{name}}: nothing")
    except PenstockError as error:
        print(f"{{name}}: {{type(error).__name__}}: {{error}}")
    except SystemExit as error:
        print(f"{{name}}: {{error}}")
    except Exception:
        print(f"{{name}}: {{traceback.format_exc()}}")
"""


def errors_as_nobody(folder: Path, setup: str, attempts: Mapping[str, str]) -> dict[str, str]:
    """Evaluate each expression in a folder without any permissions, and return the errors they raise.

    Args:
        folder: the working directory.
        setup: code to run before permissions are given up; must import what is imported late.
        attempts: expressions by name.
    """
    calls = ", ".join(f"{name!r}: lambda: {call}" for name, call in attempts.items())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT.format(setup=setup, attempts=calls)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stdout, done.stdout
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)


class FolderInPlace(NamedTuple):
    """A data set with a folder in the place of one of its files, and the error that loading it raises."""

    make: Callable[[Path], None]
    load: Callable[[Path], object]
    file: str
    text: str

    def check(self, root: Path) -> None:
        self.make(root)
        (root / self.file).unlink()
        (root / self.file).mkdir()
        with pytest.raises(DataError, match=self.text):
            self.load(root)


def check_forbidden(
    root: Path,
    makers: Mapping[str, Callable[[Path], None]],
    setup: str,
    attempts: Mapping[str, tuple[str, str]],
    listed: str,
) -> dict[str, str]:
    """Make data sets, and expect errors without a traceback from a user who may not read parts of them.

    Args:
        root: an empty folder.
        makers: by sub-folder, the function that makes a data set there.
        setup: as for `errors_as_nobody`; must import CATALOGUE.
        attempts: by name, a call and the file that its error must name, which is made unreadable.
        listed: a data set to list from a locked cache, and to fetch into an unwritable one.

    Returns:
        The errors of the attempts by name.
    """
    others = {
        "the listing": f"sys.exit(next(row.get for row in CATALOGUE.listing() if row.name == {listed!r}))",
        "a fetch": f"os.environ.update(PENSTOCK_DATA='unwritable') or CATALOGUE.fetch({listed!r})",
    }
    calls = {name: call for name, (call, _) in attempts.items()} | others
    forbidden = [file for _, file in attempts.values() if not file.startswith("locked")]
    with _made_and_locked(root, makers, forbidden):
        errors = errors_as_nobody(root, setup, calls)
    assert set(errors) == set(calls)
    for name, (_, file) in attempts.items():
        assert re.match(rf"DataError: .*{re.escape(file)}.*Permission denied", errors[name]), errors[name]
    assert f"locked/{listed}" in errors["the listing"] and "Permission denied" in errors["the listing"]
    assert errors["a fetch"].startswith("StorageError: ") and f"unwritable/{listed}" in errors["a fetch"]
    return errors


@contextmanager
def _made_and_locked(root: Path, makers: Mapping[str, Callable[[Path], None]], names: Sequence[str]) -> Iterator[None]:
    """Make the data sets, and take all permissions away from some of their files and folders."""
    for name, make in makers.items():
        (root / name).mkdir(parents=True)
        make(root / name)
    (root / "locked" / "x").mkdir(parents=True)
    (root / "unwritable").mkdir(mode=0o555)
    root.chmod(0o755)
    for name in {*names, "locked"}:
        (root / name).chmod(0)
    yield
    for name in {*names, "locked"}:
        (root / name).chmod(0o755)
