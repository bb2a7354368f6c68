"""The data sets that only the paper needs, and the paper's class mapping."""
