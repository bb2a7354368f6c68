"""Compare running times: interleaved, best of several rounds, so that load on the machine affects all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_seconds(contenders: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 1) -> dict[str, float]:
    """Return the shortest time of each contender over interleaved rounds."""
    best = dict.fromkeys(contenders, float("inf"))
    for number in range(warm_up + rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if number >= warm_up:
                best[name] = min(best[name], time.perf_counter() - start)
    return best
