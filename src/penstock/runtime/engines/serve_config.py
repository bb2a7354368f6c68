"""How a stage is served on a cluster: values that say so. engines/ray_serve.py does it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.errors import DeliveryError


@dataclass(frozen=True)
class Replicas:
    """How many processes run a stage: as many as the load asks for, between two numbers.

    >>> str(Replicas.parse("2")), Replicas.parse("1-8")
    ('2', Replicas(least=1, most=8))
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise DeliveryError(
                f"{self.least} to {self.most} replicas are not possible: a number from 1 on, or a range such as 1-8."
            )

    @classmethod
    def parse(cls, text: str) -> Replicas:
        """Read "2", or "1-8".

        Raises:
            DeliveryError: when it is neither.
        """
        parts = text.split("-")
        if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise DeliveryError(f"{text!r} replicas are not possible: give a number, or a range such as 1-8.")
        return cls(int(parts[0]), int(parts[-1]))

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True)
class ServeConfig:
    """How a stage is served.

    Attributes:
        replicas: how many.
        batch: samples that a replica runs at once at most.
        wait_ms: how long a replica waits for a batch to fill. A sample that comes alone waits so long too.
        threads: that a replica may use, and as many processors it takes of a machine.
        cluster: the address of a Ray cluster, "auto" for the one on this machine; None: one of our own, here.
        delay_s: how long a load must last before the number of replicas follows it.
    """

    replicas: Replicas = Replicas(1, 1)
    batch: int = 32
    wait_ms: float = 2.0
    threads: int = 1
    cluster: str | None = None
    delay_s: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("threads", 1), ("wait_ms", 0), ("delay_s", 0)):
            value = getattr(self, name)
            if not (value >= least and math.isfinite(value)):
                raise DeliveryError(f"{name} = {value} is not possible: it is {least} or more.")
        if self.replicas.least < self.replicas.most and not self.delay_s:
            raise DeliveryError("replicas follow a load that lasts: give a delay of more than 0 s.")

    @property
    def window(self) -> int:
        """How many frames of one sender may be on their way: enough to keep all replicas busy.

        >>> ServeConfig().window, ServeConfig(Replicas(1, 8)).window, ServeConfig(Replicas(9, 99)).window
        (128, 1024, 1024)
        """
        return min(1024, 4 * self.batch * self.replicas.most)
