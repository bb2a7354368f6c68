"""Words made of tones, which a small network learns to distinguish in seconds."""

import numpy as np


def syllables(*hz: float, seed: int = 0) -> np.ndarray:
    """Return a word of one second: a gliding tone per syllable; another seed is another voice, with another pitch."""
    rng = np.random.default_rng(seed)
    pitch, loud = rng.uniform(0.93, 1.07), rng.uniform(0.1, 0.3)
    parts = []
    for tone in hz:
        t = np.arange(round(0.25 * 16_000)) / 16_000
        parts.append(loud * np.hanning(len(t)) * np.sin(2 * np.pi * tone * pitch * t * (1 + 0.1 * t)))
    word = np.concatenate(parts)
    gap = np.zeros((16_000 - len(word)) // 2)
    return (np.concatenate([gap, word, gap]) * 32767).astype(np.int16)
