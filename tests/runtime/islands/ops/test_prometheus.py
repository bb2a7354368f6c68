"""The metrics page of an island: every row of the table, and a new one is one more row."""

import urllib.request

import pytest

from helpers.bundles import ENGINES
from helpers.islands import BUNDLE
from penstock.errors import LinkError
from penstock.runtime.islands.island import Island
from penstock.runtime.islands.ops import prometheus
from penstock.runtime.islands.ops.prometheus import COUNTER, GAUGE, METRICS, IslandMetric, serve_metrics


def page_of(island: Island) -> str:
    server = serve_metrics(island, "127.0.0.1:0")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=5) as response:
            return response.read().decode()
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def island() -> Island:
    return Island(BUNDLE, len(BUNDLE.manifest.stages), engine=ENGINES[-1])


def test_the_page_has_every_metric_with_its_help_and_type(island) -> None:
    page = page_of(island)
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        name = f"penstock_{metric.name}" + ("_total" if metric.kind is COUNTER else "")
        assert f"# HELP {name} {metric.help}" in page
        assert f"# TYPE {name} {'counter' if metric.kind is COUNTER else 'gauge'}" in page
    assert f'penstock_frames_total{{stage="{island.number}"}} 0.0' in page


def test_a_new_metric_is_one_row(island, monkeypatch) -> None:
    row = IslandMetric("draining", GAUGE, "Whether the island drains.", lambda island: island.draining)
    monkeypatch.setattr(prometheus, "METRICS", (*METRICS, row))
    assert f'penstock_draining{{stage="{island.number}"}} 0.0' in page_of(island)


def test_an_address_in_use_is_refused(island) -> None:
    server = serve_metrics(island, "127.0.0.1:0")
    try:
        with pytest.raises(LinkError, match=str(server.server_port)):
            serve_metrics(island, f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
