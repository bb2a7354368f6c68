"""Keep the memory of freed tensors in the process, so that the next ones need no new pages.

glibc gives large blocks back to the system at once. A training step frees and allocates hundreds of them, and spends up
to a third of its time on getting pages back. GPUs have an allocator of their own, other systems another malloc.
"""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt(3)
KEPT_BYTES = 1 << 30
"""Free memory above this goes back to the system."""


def keep_freed_memory() -> None:
    """Set glibc's malloc so, for the whole process; the user's own settings (``MALLOC_…_``) take precedence."""
    chosen = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if sys.platform != "linux" or chosen:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
