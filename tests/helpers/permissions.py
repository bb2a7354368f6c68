"""Data sets with something that cannot be read: a folder where a file is expected, or a file without permission."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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


def check_folder_in_place_of_file(
    root: Path, make: Callable[[Path], None], load: Callable[[Path], object], file: str, text: str
) -> None:
    """Make a data set, put a folder in the place of one of its files, and expect a DataError that matches."""
    make(root)
    (root / file).unlink()
    (root / file).mkdir()
    with pytest.raises(DataError, match=text):
        load(root)


@contextmanager
def forbidden_files(root: Path, makers: Mapping[str, Callable[[Path], None]], names: Sequence[str]) -> Iterator[Path]:
    """Make data sets in sub-folders, and take all permissions away from some of their files and folders."""
    for name, make in makers.items():
        (root / name).mkdir(parents=True)
        make(root / name)
    (root / "locked" / "x").mkdir(parents=True)
    (root / "unwritable").mkdir(mode=0o555)
    root.chmod(0o755)
    for name in (*names, "locked"):
        (root / name).chmod(0)
    yield root
    for name in (*names, "locked"):
        (root / name).chmod(0o755)


def check_errors_as_nobody(
    folder: Path, setup: str, attempts: Mapping[str, tuple[str, str]], others: Mapping[str, str]
) -> dict[str, str]:
    """Expect a DataError "Permission denied" with the named file from every attempt (call, file).

    Returns:
        The errors of the attempts and of the other calls, by name.
    """
    calls = {name: call for name, (call, _) in attempts.items()} | others
    errors = errors_as_nobody(folder, setup, calls)
    assert set(errors) == set(calls)
    for name, (_, file) in attempts.items():
        assert re.match(rf"DataError: .*{re.escape(file)}.*Permission denied", errors[name]), errors[name]
    return errors
