# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus: its configuration, its process, and what it answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.builds import binaries
from tests.controlplane.components import LOOPBACK, Command, free_port
from tests.controlplane.families import PROMETHEUS
from tests.controlplane.programs import Programs

SOON = 60.0
"""For something that is bound to come, even where the machine is busy."""

SCRAPE_SECONDS = 1

Labels = Mapping[str, str]
Config = Mapping[str, Any]
Target = tuple[str, Labels]
"""Host and port, and labels of its own: ``__metrics_path__`` is where it serves metrics."""


class RefusedError(Exception):
    """Prometheus cannot answer the query; the text is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of an answer."""

    labels: Labels
    """The name of the metric is ``__name__``."""
    points: tuple[tuple[float, float], ...]
    """Unix seconds and value, oldest first; one point at an instant."""

    @property
    def value(self) -> float:
        """The newest."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """One that runs, by its HTTP API. Its answers raise RefusedError."""

    port: int

    def query(self, expression: str, *, at: float | None = None) -> list[Series]:
        """The expression's series at one moment, now unless given."""
        when = {} if at is None else {"time": str(at)}
        data = self._get("query", {"query": expression, **when})
        if data["resultType"] in ("scalar", "string"):
            return [Series(labels={}, points=(_point(data["result"]),))]
        return [
            Series(labels=one["metric"], points=(_point(one["value"]),)) for one in data["result"]
        ]

    def range(self, expression: str, *, start: float, end: float, step: float) -> list[Series]:
        """The expression's series between two moments, a point each so many seconds."""
        asked = {"query": expression, "start": str(start), "end": str(end), "step": str(step)}
        return [
            Series(labels=one["metric"], points=tuple(map(_point, one["values"])))
            for one in self._get("query_range", asked)["result"]
        ]

    def samples(self, selector: str, seconds: float) -> list[Series]:
        """The samples of the last seconds as they were scraped, of the series that match."""
        data = self._get("query", {"query": f"{selector}[{seconds:.0f}s]"})
        return [
            Series(labels=one["metric"], points=tuple(map(_point, one["values"])))
            for one in data["result"]
        ]

    def label_values(self, label: str, *matching: str) -> list[str]:
        """Values of a label, of the series that match; sorted."""
        found: list[str] = self._get(f"label/{label}/values", [("match[]", it) for it in matching])
        return found

    def labels_of(self, metric: str) -> set[str]:
        """Names of the labels that the metric's series have between them."""
        return set(self._get("labels", {"match[]": metric})) - {"__name__"}

    def targets(self) -> list[Mapping[str, Any]]:
        """What it scrapes, and how that went."""
        active: list[Mapping[str, Any]] = self._get("targets", {"state": "active"})["activeTargets"]
        return active

    def rules(self) -> list[Mapping[str, Any]]:
        """Every rule of every group, with its health."""
        groups = self._get("rules", {})["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for(self, expression: str, *, seconds: float = SOON) -> list[Series]:
        """The expression's series once there are any. Fails when none come."""
        deadline = time.monotonic() + seconds
        while not (found := self.query(expression)):
            assert time.monotonic() < deadline, f"no series within {seconds:g} s: {expression}"
            time.sleep(0.1)
        return found

    def parsed(self, expression: str) -> Mapping[str, Any]:
        """The expression's syntax tree; each node has a ``type``."""
        tree: Mapping[str, Any] = self._get("parse_query", {"query": expression})
        return tree

    def ready(self) -> bool:
        """It answers queries."""
        try:
            return self._answer("/-/ready")[0] == http.client.OK
        except OSError:
            return False

    def _get(self, what: str, ask: Mapping[str, str] | Sequence[tuple[str, str]]) -> Any:
        status, body = self._answer(f"/api/v1/{what}?{urllib.parse.urlencode(ask)}")
        answer = json.loads(body)
        if status != http.client.OK:
            raise RefusedError(answer["error"])
        return answer["data"]

    def _answer(self, path: str) -> tuple[int, bytes]:
        with contextlib.closing(
            http.client.HTTPConnection(LOOPBACK, self.port, timeout=SOON)
        ) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()


def configuration(
    jobs: Iterable[Config], *, rule_files: Iterable[Path] = (), evaluation_seconds: int = 1
) -> Config:
    """A whole configuration that scrapes every second."""
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{evaluation_seconds}s",
        },
        "rule_files": [str(file) for file in rule_files],
        "scrape_configs": list(jobs),
    }


def job(name: str, targets: Iterable[Target], **more: Any) -> Config:
    """A job that scrapes these."""
    named = [{"targets": [address], "labels": dict(labels)} for address, labels in targets]
    return {"job_name": name, "static_configs": named, **more}


@contextmanager
def running(folder: Path, config: Config) -> Iterator[Prometheus]:
    """A Prometheus of that configuration, with its data in ``folder``, while the block lasts.

    It ends with this process too, however that ends. Raises NotPreparedError and ProgramError.
    """
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    port = free_port()
    with Programs(folder / "logs") as programs:
        programs.start("prometheus", _command(file, folder / "data", port))
        prometheus = Prometheus(port=port)
        programs.wait("prometheus", prometheus.ready)
        yield prometheus


def _command(file: Path, data: Path, port: int) -> Command:
    return [
        binaries(PROMETHEUS) / "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--storage.tsdb.retention.time=1y",  # tests bring history of their own
        "--log.level=warn",
    ]


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
