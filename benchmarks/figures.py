"""What a benchmark returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """A measured value, and what it is to reach."""

    figure: str
    value: float
    relation: Literal["<=", ">="]
    reach: float
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the value reaches it."""
        return self.value <= self.reach if self.relation == "<=" else self.value >= self.reach
