"""Find data sets on this machine, and fetch them from their publishers."""
