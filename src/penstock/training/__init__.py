"""Train a gated network."""
