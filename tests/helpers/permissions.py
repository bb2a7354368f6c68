"""Run calls as a user without permissions, on files that this user may not read."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def unreadable(root: Path, names: Sequence[str]) -> Iterator[None]:
    """Take all permissions away from some files and folders."""
    root.chmod(0o755)
    for name in names:
        (root / name).chmod(0)
    yield
    for name in names:
        (root / name).chmod(0o755)
