"""What finished runs say: summaries, claims, and the paper's own figures."""
