"""Operate islands: metrics, shadow audits, a local cluster, certificates."""
