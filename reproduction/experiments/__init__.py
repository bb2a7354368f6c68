"""The paper's tables and figures as Python values; results are JSON files, one a run."""
