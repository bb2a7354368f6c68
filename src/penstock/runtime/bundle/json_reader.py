"""Read JSON objects field by field, with type checks: an error names the field and where it stands."""

from __future__ import annotations

import math
from typing import Any


class FieldError(Exception):
    """A field has the wrong type or value. The caller adds the name of the file."""


class JsonReader:
    """Typed access to the fields of a parsed JSON object.

    Args:
        fields: the object, as `json.loads` returns it.
        where: what the object is, for errors, such as "stage 1".
    """

    def __init__(self, fields: Any, where: str):
        if not isinstance(fields, dict):
            raise FieldError(f"{where}: expected an object, got {fields!r:.40}")
        self.where = where
        self._fields = fields

    def string(self, name: str) -> str:
        return self._get(name, str, "a string")

    def integer(self, name: str) -> int:
        return self._get(name, int, "an integer")

    def count(self, name: str) -> int:
        """Return an integer of at least 0."""
        value = self.integer(name)
        if value < 0:
            raise FieldError(f"{name} of {self.where} must be at least 0, got {value}")
        return value

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self._get(name, (int, float), "a number")
        if not math.isfinite(value):
            raise FieldError(f"{name} of {self.where} must be finite, got {value}")
        return float(value)

    def items(self, name: str) -> list[Any]:
        """Return a list with elements of any type."""
        return self._get(name, list, "a list")

    def numbers(self, name: str) -> list[float]:
        """Return a list of finite numbers."""
        elements = self._elements(name)
        return [elements.number(i) for i in elements._fields]

    def counts(self, name: str) -> list[int]:
        """Return a list of integers of at least 0."""
        elements = self._elements(name)
        return [elements.count(i) for i in elements._fields]

    def object(self, name: str) -> JsonReader:
        """Return a reader of a nested object."""
        return JsonReader(self._value(name), f"{name} of {self.where}")

    def is_null(self, name: str) -> bool:
        """Return whether the field is null."""
        return self._value(name) is None

    def has(self, name: str) -> bool:
        """Return whether there is such a field, for those that a bundle may leave out."""
        return name in self._fields

    def _elements(self, name: str) -> JsonReader:
        return JsonReader(dict(enumerate(self.items(name))), f"{name} of {self.where}")

    def _get(self, name: str, kind: Any, expected: str) -> Any:
        value = self._value(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise FieldError(f"{name} of {self.where} must be {expected}, got {value!r:.40}")
        return value

    def _value(self, name: str) -> Any:
        if name not in self._fields:
            raise FieldError(f"{self.where} has no field {name!r}")
        return self._fields[name]
