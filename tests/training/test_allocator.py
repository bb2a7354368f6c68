"""Freed memory stays in the process."""

import os
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from penstock.training.allocator import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
for round in range(2):  # the first finds places for all
    before = faults()
    for _ in range(20):
        torch.ones(16_000_000)  # 64 MB, freed at once
print(faults() - before)
"""


def page_faults(**variables):
    """Return the page faults of allocating the same memory twenty times, in a process of its own."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", CODE]
    return int(subprocess.run(command, env=bare | variables, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is that of Linux")
def test_memory_is_not_faulted_in_again_unless_the_user_has_own_settings():
    assert page_faults() < page_faults(MALLOC_ARENA_MAX="8") / 10
