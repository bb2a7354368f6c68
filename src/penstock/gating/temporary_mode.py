"""Switch a module to training or evaluation mode temporarily."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def temporary_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Put every submodule into one mode, and afterwards each back into its own."""
    others = [part for part in module.modules() if part.training != training]
    try:
        for part in others:
            part.training = training
        yield
    finally:
        for part in others:
            part.training = not training
