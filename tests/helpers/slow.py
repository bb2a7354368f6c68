"""Cases that only `make test-slow` runs."""

from collections.abc import Collection, Iterable

import pytest


def slow_but(fast: Collection[str], names: Iterable[str]) -> list:
    """Return names as parameters of a test that is slow for all but the fast ones."""
    return [pytest.param(name, marks=[] if name in fast else [pytest.mark.slow]) for name in names]
