"""Detect that a gate stops another share of frames than it used to."""

from __future__ import annotations

import math
from collections import deque


class DriftDetector:
    """Compares the share of stopped frames in the first window and in the latest one.

    Args:
        window: frames per window.
        max_errors: how many standard errors the two shares may differ by. Consecutive frames are correlated, so the
            limit is higher than for independent samples.
    """

    def __init__(self, window: int = 2000, max_errors: float = 6.0):
        self._window, self._max_errors = window, max_errors
        self._first: list[bool] = []
        self._latest: deque[bool] = deque(maxlen=window)

    def add(self, stopped: bool) -> None:
        """Record a decision of the gate."""
        if len(self._first) < self._window:
            self._first.append(stopped)
        else:
            self._latest.append(stopped)

    @property
    def detected(self) -> bool:
        """Whether the shares differ by more than chance; false before both windows are full."""
        if len(self._latest) < self._window:
            return False
        first, latest = sum(self._first) / self._window, sum(self._latest) / self._window
        mean = (first + latest) / 2
        error = math.sqrt(max(2 * mean * (1 - mean) / self._window, 1e-12))
        return abs(latest - first) > self._max_errors * error
