"""Stages as processes on different machines, joined by links."""
