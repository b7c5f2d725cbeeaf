# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus is asked what we say about queries: one scrapes the old exporter, one the new.

A query that gives series on the old one and none on the new one, or that only the new one refuses,
must be called lost; what is called dead must give nothing on the old one; and what Prometheus takes
must not be called unreadable.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from exporters.compare.exposition_parser import parse_exposition
from exporters.queries.judged_queries import Query, QueryPlace, QueryVerdict, judged
from exporters.queries.served_series import ServedSeries
from tests.controlplane.components import LOOPBACK
from tests.exporters.queries.expositions import NEW, OLD
from tests.monitoring import prometheus as real
from tests.monitoring.prometheus import Prometheus, RefusedError

pytestmark = pytest.mark.cluster

BEFORE, AFTER = (ServedSeries.from_families(parse_exposition(text.encode())) for text in (OLD, NEW))

METRICS = tuple(sorted({*BEFORE.by_name, *AFTER.by_name}))
CONDITIONS = (
    "",
    '{gpu="0"}',
    '{gpu="1"}',
    '{gpu="7"}',
    '{gpu=~"0|1",namespace="ml"}',
    '{namespace=""}',
    '{Hostname="node"}',
    '{hostname="node"}',
    '{Hostname!="node"}',
    '{Hostname!=""}',
    '{mode=~"o.d"}',
    '{mode!~"o.d"}',
)
ONE = (
    "{}",
    "sum({})",
    "avg by (gpu) ({})",
    "count by (Hostname) ({})",
    "max without (gpu) ({})",
    "topk(1, {})",
    "absent({})",
    "scalar({})",
    "{} > 10",
    "count({}) > 0",
    'label_replace({}, "host", "$1", "Hostname", "(.+)")',
    "sum(sum by (mode) ({}))",
)
TWO = (
    "{} / {}",
    "{} / on (gpu) {}",
    "{} + on (gpu, Hostname) {}",
    "{} * on (gpu) group_left (Hostname) {}",
    "{} * ignoring (mode) {}",
    "{} and {}",
    "{} and on (gpu) {}",
    "{} unless on (gpu) {}",
    "{} or {}",
    "sum({}) / sum({})",
)
SELECTORS = tuple(f"{metric}{condition}" for metric in METRICS for condition in CONDITIONS)
EXPRESSIONS = (
    *(shape.format(selector) for shape in ONE for selector in SELECTORS),
    *(
        shape.format(left + condition, right)
        for shape in TWO
        for left, right in itertools.product(METRICS, METRICS)
        for condition in ("", '{gpu="1"}')
    ),
)
GIVES_WHERE_NOTHING_IS = ("absent(", "scalar(")
"""Functions whose result says that series are missing: they give one where there are none."""


@contextlib.contextmanager
def scraped(text: str, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that has scraped this exposition."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    jobs = [real.job("gpu", [(f"{LOOPBACK}:{server.server_port}", {"instance": "node-a"})])]
    try:
        folder.mkdir()
        with real.running(folder, real.configuration(jobs)) as prometheus:
            prometheus.wait_for("DCGM_FI_DEV_GPU_TEMP")
            yield prometheus
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Prometheus]]:
    folder = tmp_path_factory.mktemp("prometheus")
    with scraped(OLD, folder / "old") as old, scraped(NEW, folder / "new") as new:
        yield old, new


def gives(prometheus: Prometheus, expression: str) -> bool | None:
    """Whether it gives series; None where Prometheus refuses it."""
    try:
        return bool(prometheus.query(expression))
    except RefusedError:
        return None


def test_verdicts_are_those_of_prometheus(pair: tuple[Prometheus, Prometheus]) -> None:
    old, new = pair
    queries = [
        Query(file="d.json", place=QueryPlace.PANEL, title="t", expression=it) for it in EXPRESSIONS
    ]
    verdicts = {it.query.expression: it.verdict for it in judged(queries, BEFORE, AFTER)}
    wrong, lost = [], 0
    for expression, verdict in verdicts.items():
        before, now = gives(old, expression), gives(new, expression)
        lost += bool(before) and not now
        if expression.startswith(GIVES_WHERE_NOTHING_IS):
            continue
        is_lost = bool(before) and not now and verdict is not QueryVerdict.LOST
        is_alive = bool(before) and verdict is QueryVerdict.DEAD and " or " not in expression
        if is_lost or is_alive or verdict is QueryVerdict.UNREADABLE:
            wrong.append((expression, verdict, before, now))

    assert wrong == []
    assert lost > 500
