"""Find legal cuts, cut a network there, join the stages with gates, and undo it."""

from penstock.surgery.cuts import Cut, Cuts, cuts
from penstock.surgery.gate import gate, ungate

__all__ = ["Cut", "Cuts", "cuts", "gate", "ungate"]
