"""The command `penstock`.

Commands of a device are parsed with argparse and load no torch (`penstock.runtime.cli`); all others are in `main`.

Exit codes: 0 success · 1 an error of Penstock's, printed in one line · 2 wrong usage · 130 interrupted (but Ctrl-C is
the normal way to end `penstock listen`: 0).
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib.metadata import version

from penstock.errors import MissingExtraError, PenstockError, require
from penstock.runtime.cli import COMMANDS, run_command


def main() -> None:
    """Run the command that `sys.argv` names; print errors in one line."""
    arguments = sys.argv[1:]
    try:
        if arguments == ["--version"]:
            print(f"penstock {version('penstock')}")
        elif arguments and arguments[0] in COMMANDS:
            run_command(arguments[0], arguments[1:])
        else:
            _run_app(arguments)
    except PenstockError as error:
        sys.exit(_report(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has closed the pipe, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run_app(arguments: list[str]) -> None:
    try:
        app = require("penstock.cli.main", extra="train")
    except MissingExtraError:
        if arguments and arguments[0] not in ("--help", "-h"):
            _suggest_device_command(arguments[0])
            raise
        print("Usage: penstock COMMAND [ARGS]...\n\nCommands (penstock COMMAND --help explains one):\n")
        print("\n".join(f"  {name:<8} {text}" for name, text in COMMANDS.items()))
        print("\nMore commands (train, evaluate, export, ...): pip install 'penstock[train]'")
    else:
        app.run_app()


def _suggest_device_command(name: str) -> None:
    """Exit with a suggestion if a command of a device has a similar name."""
    near = get_close_matches(name, COMMANDS)
    if near:
        print(f"error: no command {name!r}. Did you mean {' or '.join(map(repr, near))}?", file=sys.stderr)
        sys.exit(2)


def _report(error: PenstockError) -> int:
    """Print an error to standard error, in red on a terminal."""
    red, off = ("\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}error:{off} {type(error).__name__}: {error}", file=sys.stderr)
    return 1
