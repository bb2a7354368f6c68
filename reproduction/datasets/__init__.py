"""The data sets that only the paper needs."""
