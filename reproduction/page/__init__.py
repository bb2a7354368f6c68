"""The page of the paper's reproduction: tables, figures and words, all made from result files."""
