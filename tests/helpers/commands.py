"""Run the command `penstock` in a process of its own."""

import subprocess
import sys
from typing import Any

ENTRY = (sys.executable, "-c", "from penstock.cli import main; main()")


def penstock(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run it with these arguments and these options of `subprocess.run`."""
    return subprocess.run([*ENTRY, *arguments], capture_output=True, check=False, **options)
