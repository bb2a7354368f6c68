"""Ways for messages to get from one island to another: one file a medium."""

from penstock.links.connection import Connection, Dial
from penstock.links.memory import MemoryLink

__all__ = ["Connection", "Dial", "MemoryLink"]
