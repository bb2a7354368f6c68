"""Detection metrics by their counts, and strategies for times and words."""

from hypothesis import strategies as st

from penstock.wakeword.metrics import DetectionMetrics, Utterance

# On a grid of half seconds, so that alarms fall on the edges of words and on each other.
times = st.integers(0, 40).map(lambda step: step / 2)
words = st.builds(lambda begin, length: Utterance(begin, begin + length / 2), times, st.integers(1, 8))


def metrics(misses: int, false_alarms: int, *, spoken: int = 50, hours: float = 10.0) -> DetectionMetrics:
    """Return metrics with these counts; every hit has the same latency."""
    return DetectionMetrics(spoken - misses, misses, false_alarms, hours, (0.2,) * (spoken - misses))
