"""Wake words: from a folder of clips to a bundle that listens."""
