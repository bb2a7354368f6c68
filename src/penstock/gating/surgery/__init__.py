"""Find legal cuts, cut a network there, join the stages with gates, and undo it."""

from penstock.gating.surgery.cuts import Cut, Cuts, cuts
from penstock.gating.surgery.insert import gate, ungate

__all__ = ["Cut", "Cuts", "cuts", "gate", "ungate"]
