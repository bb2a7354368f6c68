"""Training and evaluation mode, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Put every submodule into one mode for a while, and then each back into its own."""
    before = [(part, part.training) for part in module.modules()]
    try:
        for part, _ in before:
            part.training = training
        yield
    finally:
        for part, was in before:
            part.training = was
