"""What came as JSON, taken field by field and by type: a wrong one is said by its name and place."""

from __future__ import annotations

import math
from typing import Any


class FieldError(Exception):
    """Says which field is not what it should be; whoever reads the file says which file it is."""


class JsonReader:
    """The fields of a JSON object, each taken once and by its type."""

    def __init__(self, plain: Any, where: str):
        if not isinstance(plain, dict):
            raise FieldError(f"{where} is no object")
        self.plain, self.where = plain, where

    def text(self, name: str) -> str:
        """Return a text."""
        return self._take(name, str, "a text")  # type: ignore[no-any-return]

    def whole(self, name: str) -> int:
        """Return a whole number."""
        return self._take(name, int, "a number")  # type: ignore[no-any-return]

    def count(self, name: str) -> int:
        """Return a whole number that is not below 0."""
        value = self.whole(name)
        if value < 0:
            raise FieldError(f"{name} of {self.where} is {value}, below 0")
        return value

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self._take(name, (int, float), "a number")
        if not math.isfinite(value):
            raise FieldError(f"{name} of {self.where} is {value}")
        return float(value)

    def items(self, name: str) -> list[Any]:
        """Return a list of anything."""
        return self._take(name, list, "a list")  # type: ignore[no-any-return]

    def numbers(self, name: str) -> list[float]:
        """Return a list of finite numbers."""
        each = JsonReader(dict(enumerate(self.items(name))), f"{name} of {self.where}")
        return [each.number(i) for i in each.plain]

    def counts(self, name: str) -> list[int]:
        """Return a list of counts."""
        each = JsonReader(dict(enumerate(self.items(name))), f"{name} of {self.where}")
        return [each.count(i) for i in each.plain]

    def fields(self, name: str) -> JsonReader:
        """Return an object of its own."""
        return JsonReader(self.plain[name], f"{name} of {self.where}")

    def missing(self, name: str) -> bool:
        """Say whether there is nothing in its place."""
        return self.plain[name] is None

    def _take(self, name: str, kind: Any, meant: str) -> Any:
        value = self.plain[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise FieldError(f"{name} of {self.where} is {value!r:.40}, which is no {meant.removeprefix('a ')}")
        return value
