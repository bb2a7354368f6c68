"""Pretend that a package is not installed."""

import sys

import pytest


def hide_package(monkeypatch: pytest.MonkeyPatch, package: str, users: str) -> None:
    """Hide a package, and forget our modules that start with ``users`` so that they are imported again without it.

    When the test ends, all of them are as before: as entries of sys.modules and as attributes of their parents.
    """
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(users)]:
        parent, _, leaf = name.rpartition(".")
        if parent in sys.modules:
            monkeypatch.delattr(sys.modules[parent], leaf, raising=False)
    for name in [name for name in sys.modules if name.startswith(users)]:
        monkeypatch.delitem(sys.modules, name)
