"""The paper's results, reproduced: `python -m reproduction --help`."""
