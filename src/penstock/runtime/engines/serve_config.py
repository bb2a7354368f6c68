"""How a stage is served on a Ray cluster; engines/ray_serve.py does it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.errors import DeliveryError


@dataclass(frozen=True)
class Replicas:
    """Limits for the number of processes that run a stage; it scales with the load.

    >>> str(Replicas.parse("2")), Replicas.parse("1-8")
    ('2', Replicas(least=1, most=8))
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise DeliveryError(f"replicas must be at least 1, or a range such as 1-8, got {self}.")

    @classmethod
    def parse(cls, text: str) -> Replicas:
        """Parse a number such as "2", or a range such as "1-8"; raise a DeliveryError if it is neither."""
        parts = text.split("-")
        if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise DeliveryError(f"replicas must be a number, or a range such as 1-8, got {text!r}.")
        return cls(int(parts[0]), int(parts[-1]))

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True)
class ServeConfig:
    """How a stage is served."""

    replicas: Replicas = Replicas(1, 1)
    batch: int = 32  # largest batch of a replica
    wait_ms: float = 2.0  # how long a replica waits for a batch to fill; a single sample waits as long
    threads: int = 1  # of a replica, which takes as many processors
    cluster: str | None = None  # address of a Ray cluster, "auto" for the one on this machine; None to start one
    delay_s: float = 10.0  # how long a load must last before the number of replicas follows it

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("threads", 1), ("wait_ms", 0), ("delay_s", 0)):
            value = getattr(self, name)
            if not (value >= least and math.isfinite(value)):
                raise DeliveryError(f"{name} must be finite and at least {least}, got {value}.")
        if self.replicas.least < self.replicas.most and not self.delay_s:
            raise DeliveryError("delay_s must be above 0 for a range of replicas, got 0.")

    @property
    def window(self) -> int:
        """How many frames of one client may be in flight: enough to keep all replicas busy.

        >>> ServeConfig().window, ServeConfig(Replicas(1, 8)).window, ServeConfig(Replicas(9, 99)).window
        (128, 1024, 1024)
        """
        return min(1024, 4 * self.batch * self.replicas.most)
