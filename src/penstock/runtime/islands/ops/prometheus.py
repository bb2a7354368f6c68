"""What an island has done, for who watches it: Prometheus metrics over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.errors import LinkError
from penstock.runtime.islands.island import Island

QUANTILES = (0.5, 0.99)

COUNTERS = {
    "frames": "Frames received.",
    "duplicates": "Frames received that were known.",
    "stopped": "Frames that the gate stopped.",
    "forwarded": "Frames sent on to the next island.",
    "answered": "Frames that have their answer.",
    "received_bytes": "Bytes of payload received.",
    "forwarded_bytes": "Bytes of payload sent on.",
}
"""Fields of `Counts`, and what they mean."""


class IslandCollector(Collector):
    """Reads an island's counts when somebody asks."""

    def __init__(self, island: Island):
        self._island = island

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, each with the number of the stage."""
        island, stage = self._island, str(self._island.number)
        for name, meaning in COUNTERS.items():
            yield self._counter(name, meaning, getattr(island.counts, name))
        for name, meaning, counts in (
            ("dropped", "Frames reported as dropped, by reason.", dict(island.counts.dropped)),
            ("refused", "Messages not accepted, by fault.", dict(island.counts.refused)),
        ):
            metric = CounterMetricFamily(f"penstock_{name}", meaning, labels=["stage", "why"])
            for why, count in counts.items():
                metric.add_metric([stage, why.name.lower()], count)
            yield metric
        yield self._gauge("waiting", "Frames that wait for the next island's answer.", island.waiting)
        yield self._gauge("connected", "Whether the next island is there.", float(island.connected))
        yield self._gauge("refused_by_next", "Whether the next island is there and refuses us.", float(island.refused))
        yield self._counter("audited", "Stopped frames that were let through and judged.", island.audit.here.judged)
        yield self._counter("audited_positive", "Of those, positive at the end.", island.audit.here.positive)
        yield self._gauge(
            "drift", "Whether the share of stopped frames is not what it was.", float(island.drift.flagged)
        )
        lost = GaugeMetricFamily(
            "penstock_lost_rate", "The share of positives that the gate loses, by the audit.", labels=["stage", "bound"]
        )
        for bound, value in zip(("low", "estimate", "high"), island.audit.lost_rate() or (), strict=False):
            lost.add_metric([stage, bound], value)
        yield lost
        seconds = GaugeMetricFamily(
            "penstock_here_seconds", "From a frame's arrival to its decision.", labels=["stage", "q"]
        )
        for quantile, value in island.quantiles(QUANTILES).items():
            seconds.add_metric([stage, f"{quantile:g}"], value)
        yield seconds

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        metric = CounterMetricFamily(f"penstock_{name}", meaning, labels=["stage"])
        metric.add_metric([str(self._island.number)], value)
        return metric

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        metric = GaugeMetricFamily(f"penstock_{name}", meaning, labels=["stage"])
        metric.add_metric([str(self._island.number)], value)
        return metric


def serve_metrics(island: Island, address: str) -> tuple[WSGIServer, Thread]:
    """Serve an island's metrics at host:port, port 0 for a free one; return the server and its thread.

    Raises:
        LinkError: when the address cannot be listened at.
    """
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(IslandCollector(island))
    try:
        return start_http_server(int(port), host.strip("[]"), registry)  # type: ignore[no-any-return]
    except (OSError, ValueError, OverflowError) as error:
        raise LinkError(
            f"metrics cannot be served at {address!r}: {error}. Give host:port, such as 127.0.0.1:9100."
        ) from error
