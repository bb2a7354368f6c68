"""Results as tables for a terminal and as plots."""
