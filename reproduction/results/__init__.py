"""Finished runs: summaries, claims, and the paper's own figures."""
