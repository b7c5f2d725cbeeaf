# SPDX-License-Identifier: Apache-2.0
"""Rendering and serving a full node: our text against prometheus_client on the same series.

The node has 8 GPUs with 7 GPU instances each and 68 metric families: as many series as the
full DCGM list gives there. Every value is a series' own, our renderer's worst case.
``prometheus_client`` gets its numbers ready made, where ours are read from samples.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from discovery.model import NodeSnapshot
from discovery.sample import GpuSample
from exporters.dcgm.catalog import DEFAULT_FAMILIES
from exporters.dcgm.dcgm_family import AnyFamily, UnderMig
from exporters.dcgm.render import Renderer, SeriesIdentity
from exporters.prometheus_text import MetricType
from tests import build, exposition
from tests.bench import clock
from tests.bench.page import Section
from tests.exporters import everything
from web.address import Address
from web.messages import Body, Response
from web.server import HttpServer

GPUS = 8
INSTANCES = 7
FAMILIES = 68
BUDGET_RATIO = 0.1
IDENTITY = SeriesIdentity(hostname="gpu-node-0123.cluster.example")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out; times are medians."""

    series: int
    body_bytes: int
    gzip_bytes: int
    render_seconds: float
    first_render_seconds: float
    """After a change of labels: every series' text made again."""
    prometheus_client_seconds: float
    gzip_seconds: float
    serve_seconds: float
    serve_gzip_seconds: float

    @property
    def ratio(self) -> float:
        """Our time over prometheus_client's."""
        return self.render_seconds / self.prometheus_client_seconds


def full_node() -> tuple[NodeSnapshot, list[GpuSample]]:
    """The node and its samples, with every reading that a GPU can give."""
    devices = tuple(build.mig_device("1g.10gb", gi=gi) for gi in range(7, 7 + INSTANCES))
    gpus = [
        everything.gpu(at, model="NVIDIA H100 80GB HBM3", mig=build.SPLIT, mig_devices=devices)
        for at in range(GPUS)
    ]
    return build.node(gpus), [everything.sample(gpu) for gpu in gpus]


def many_families() -> list[AnyFamily]:
    """The default set over and over under new names, with a value for each GPU instance."""
    return [
        replace(family, field=at, name=f"{family.name}_{at}", under_mig=UnderMig.OWN)
        for at, family in zip(range(FAMILIES), cycle(DEFAULT_FAMILIES), strict=False)
    ]


class SameSeries(Collector):
    """A custom collector of the series in an exposition, as the library's manual writes one."""

    def __init__(self, body: bytes) -> None:
        self._families = [
            (family, [label for label, _ in next(iter(family.series))[1]], _rows(family))
            for family in exposition.parse(body).values()
        ]

    def collect(self) -> Iterator[Metric]:
        """Fresh families with all their series."""
        for family, labels, rows in self._families:
            counts = family.kind == MetricType.COUNTER
            kind = CounterMetricFamily if counts else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=labels)
            for values, value in rows:
                metric.add_metric(values, value)
            yield metric


def _rows(family: exposition.Family) -> list[tuple[list[str], float]]:
    return [
        ([value for _, value in labels], float(value))
        for (_, labels), value in family.series.items()
    ]


def check_equal(ours: bytes, theirs: bytes) -> int:
    """The number of series, which both have. Raises AssertionError where they differ.

    Apart from one thing: prometheus_client appends ``_total`` to the name of every counter.
    """
    counters = {
        family.name for family in exposition.parse(ours).values() if family.kind == "counter"
    }
    renamed = {
        (f"{name}_total" if name in counters else name, labels): value
        for (name, labels), value in exposition.series(ours).items()
    }
    assert renamed == exposition.series(theirs)
    return len(renamed)


def measure(rounds: int = clock.ROUNDS) -> Result:
    """Render, compress and serve the node in each way, in turns."""
    (snapshot, samples), families = full_node(), many_families()
    renderer = Renderer(families)

    def render(by: Renderer = renderer) -> bytes:
        return by.render(snapshot, samples, samples, IDENTITY)

    body = render()
    registry = CollectorRegistry()
    registry.register(SameSeries(body))
    series = check_equal(body, generate_latest(registry))
    seconds = clock.medians_seconds(
        {
            "ours": render,
            "first": lambda: render(Renderer(families)),
            "prometheus_client": lambda: generate_latest(registry),
            "gzip": lambda: Body(body).gzipped(),
        },
        rounds,
    )
    with _scrapes(Body(body)) as (plain, compressed):
        served = clock.medians_seconds({"plain": plain, "gzip": compressed}, rounds)
    return Result(
        series=series,
        body_bytes=len(body),
        gzip_bytes=len(Body(body).gzipped()),
        render_seconds=seconds["ours"],
        first_render_seconds=seconds["first"],
        prometheus_client_seconds=seconds["prometheus_client"],
        gzip_seconds=seconds["gzip"],
        serve_seconds=served["plain"],
        serve_gzip_seconds=served["gzip"],
    )


@contextmanager
def _scrapes(body: Body) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Scrapes of a server on the loopback over one kept connection: plain and compressed."""
    server = HttpServer(
        Address(host="127.0.0.1", port=0), {"/metrics": lambda: Response(body=body)}
    )
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port)

    def scrape(encoding: str) -> bytes:
        connection.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
        return connection.getresponse().read()

    try:
        yield lambda: scrape("identity"), lambda: scrape("gzip")
    finally:
        connection.close()
        server.stop(within_seconds=1)


def section() -> Section:
    """Measured now, for the page."""
    result = measure()
    return Section(
        title="Rendering and serving the metrics of a full node",
        text=(
            f"{GPUS} GPUs with {INSTANCES} GPU instances each, {FAMILIES} metric families, a value "
            "of its own for every series. `prometheus_client` writes the same series from a custom "
            "collector by `generate_latest`, with labels and numbers ready made; gpuscape reads "
            "its numbers from samples. Before the measurement both texts are parsed and compared: "
            "series and values are equal, but for the `_total` that `prometheus_client` appends to "
            "the name of every counter. Scrapes go over one kept connection on the loopback."
        ),
        rows=(
            ("series", f"{result.series:,}"),
            ("text", _kib(result.body_bytes)),
            ("text, gzip", _kib(result.gzip_bytes)),
            ("gpuscape renders", _ms(result.render_seconds)),
            ("gpuscape renders after labels changed", _ms(result.first_render_seconds)),
            ("prometheus_client renders", _ms(result.prometheus_client_seconds)),
            (f"gpuscape / prometheus_client (budget {BUDGET_RATIO})", f"{result.ratio:.3f}"),
            ("gzip, once for each rendering", _ms(result.gzip_seconds)),
            ("one scrape, plain", _ms(result.serve_seconds)),
            ("one scrape, gzip", _ms(result.serve_gzip_seconds)),
        ),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _kib(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.0f} KiB"
