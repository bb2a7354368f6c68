"""Prometheus metrics of an island. To add one, add a line to `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.errors import LinkError
from penstock.runtime.islands.island import Island

COUNTER, GAUGE = CounterMetricFamily, GaugeMetricFamily


class IslandMetric(NamedTuple):
    """One metric."""

    name: str  # without "penstock_"; Prometheus appends "_total" to counters
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]  # COUNTER or GAUGE
    help: str
    # Returns its value, or values by the label ``label``. Called in the HTTP server's thread; must not raise.
    read: Callable[[Island], float | Mapping[str, float]]
    label: str = ""


METRICS = (
    IslandMetric("frames", COUNTER, "Frames received.", lambda island: island.stats.frames),
    IslandMetric("duplicates", COUNTER, "Frames received again.", lambda island: island.stats.duplicates),
    IslandMetric("stopped", COUNTER, "Frames that the gate stopped.", lambda island: island.stats.stopped),
    IslandMetric("forwarded", COUNTER, "Frames sent to the next island.", lambda island: island.stats.forwarded),
    IslandMetric("answered", COUNTER, "Frames answered.", lambda island: island.stats.answered),
    IslandMetric("received_bytes", COUNTER, "Payload bytes received.", lambda island: island.stats.received_bytes),
    IslandMetric("forwarded_bytes", COUNTER, "Payload bytes forwarded.", lambda island: island.stats.forwarded_bytes),
    IslandMetric("dropped", COUNTER, "Frames dropped.", lambda island: _by_name(island.stats.dropped), "reason"),
    IslandMetric("refused", COUNTER, "Messages refused.", lambda island: _by_name(island.stats.refused), "fault"),
    IslandMetric("waiting", GAUGE, "Frames waiting for the next island's answer.", lambda island: island.waiting),
    IslandMetric("connected", GAUGE, "Whether the next island is connected.", lambda island: island.connected),
    IslandMetric("refused_by_next", GAUGE, "Whether the next island refuses this one.", lambda island: island.refused),
    IslandMetric(
        "shadow_samples", COUNTER, "Shadow samples answered.", lambda island: island.shadow_audit.here.answered
    ),
    IslandMetric(
        "shadow_positives", COUNTER, "Shadow samples found positive.", lambda island: island.shadow_audit.here.positive
    ),
    IslandMetric(
        "lost_rate", GAUGE, "Estimated share of positives lost at the gate.", lambda island: _lost_rate(island), "bound"
    ),
    IslandMetric("drift", GAUGE, "Whether the stopped share has drifted.", lambda island: island.drift.detected),
    IslandMetric("latency_seconds", GAUGE, "From frame to gate decision.", lambda island: _latency(island), "quantile"),
)
"""All metrics of an island, in the order of the page. Each has the label ``stage``."""

QUANTILES = (0.5, 0.99)


class IslandCollector(Collector):
    """Reads an island's metrics when Prometheus scrapes them."""

    def __init__(self, island: Island):
        self._island = island

    def collect(self) -> Iterator[Metric]:
        stage = str(self._island.number)
        for metric in METRICS:
            labels = ["stage", metric.label] if metric.label else ["stage"]
            family = metric.kind(f"penstock_{metric.name}", metric.help, labels=labels)
            value = metric.read(self._island)
            if isinstance(value, Mapping):
                for label, each in value.items():
                    family.add_metric([stage, label], each)
            else:
                family.add_metric([stage], float(value))
            yield family


def serve_metrics(island: Island, address: str) -> WSGIServer:
    """Serve an island's metrics over HTTP at host:port, port 0 for a free one; return the server or raise LinkError."""
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(IslandCollector(island))
    try:
        return start_http_server(int(port), host.strip("[]"), registry)[0]
    except (OSError, ValueError, OverflowError) as error:
        raise LinkError(
            f"cannot serve metrics at {address!r}: {error}. Give host:port, such as 127.0.0.1:9100."
        ) from error


def _by_name(counts: Mapping[Any, int]) -> dict[str, float]:
    return {key.name.lower(): count for key, count in dict(counts).items()}


def _lost_rate(island: Island) -> dict[str, float]:
    estimate = island.shadow_audit.lost_rate()
    return {} if estimate is None else estimate._asdict()


def _latency(island: Island) -> dict[str, float]:
    return {f"{q:g}": seconds for q, seconds in island.stats.latency_quantiles(QUANTILES).items()}
