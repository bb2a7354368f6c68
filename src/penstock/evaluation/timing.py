"""Time things against each other: interleaved, the best of several, so that a busy machine is unfair to none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_seconds(contenders: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 1) -> dict[str, float]:
    """Return the shortest time of each contender; they take turns, round by round."""
    best = dict.fromkeys(contenders, float("inf"))
    for number in range(warm_up + rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if number >= warm_up:
                best[name] = min(best[name], time.perf_counter() - start)
    return best
