"""Bundles: a manifest and one graph per stage."""
