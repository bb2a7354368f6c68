"""The result of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """A measured value and its target.

    Attributes:
        figure: what was measured, as it is named in latest.json.
        relation, reach: the target.
        details: further measurements, written to latest.json beside the value.
    """

    figure: str
    value: float
    relation: Literal["<=", ">="]
    reach: float
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the value meets the target."""
        return self.value <= self.reach if self.relation == "<=" else self.value >= self.reach
