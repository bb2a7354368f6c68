"""Where data sets come from, and how they get onto this machine."""
