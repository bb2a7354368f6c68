"""Links between islands: one module per medium, listed in table.py."""
