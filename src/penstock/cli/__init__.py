"""The command `penstock`.

What runs on a device is parsed with the standard library alone and loads no torch (device.py); all else is app.py.

Exit codes: 0 done · 1 Penstock refused (the reason is on standard error) · 2 wrong usage · 130 interrupted; but Ctrl-C
is how `penstock listen` ends, with 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from penstock.errors import PenstockError


def main() -> None:
    """Run the command; turn refusals into one line and an exit code."""
    try:
        from penstock.runtime.cli.run import COMMANDS, run_on_device

        if sys.argv[1:2] and sys.argv[1] in COMMANDS:
            run_on_device(sys.argv[1:])
        else:
            _app(COMMANDS)
    except PenstockError as error:
        sys.exit(_refusal(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # who reads has read enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _app(others: Iterable[str]) -> None:
    try:
        from penstock.cli.main import run_app
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("penstock"):
            raise
        sys.exit(
            f"error: this command of penstock needs {missing.name!r}: pip install 'penstock[train]'. Without it there "
            f"are: {', '.join(others)}."
        )
    run_app()


def _refusal(error: PenstockError) -> int:
    """Say why on standard error, in red where that is a terminal."""
    red, off = ("\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}error:{off} {type(error).__name__}: {error}", file=sys.stderr)
    return 1
