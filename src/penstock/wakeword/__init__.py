"""Wake words: train on a folder of clips, evaluate on synthetic streams, export a bundle that listens."""
