"""Evaluate and calibrate a gated network."""
