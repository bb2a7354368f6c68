"""What the paper compares itself with: BranchyNet's exits, and training in two stages."""

from reproduction.baselines.branchynet import BranchyObjective, Exit, ExitOutcome, branchynet, exits
from reproduction.baselines.two_stage import fit_in_two_stages, stop_gradients

__all__ = [
    "BranchyObjective",
    "Exit",
    "ExitOutcome",
    "branchynet",
    "exits",
    "fit_in_two_stages",
    "stop_gradients",
]
