# SPDX-License-Identifier: Apache-2.0
"""Metrics of the agent's own HTTP servers: who scrapes, how long that takes, who is refused."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Summary, generate_latest


class ServingMetrics:
    """Metrics about served scrapes and refused clients, rendered at each scrape. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._scrapes = Summary(
            "gpuscape_scrape_duration_seconds",
            "Time from a scrape's last header to the last byte of its answer, for those served.",
            registry=self._registry,
        )
        self._refusals = Counter(
            "gpuscape_http_refusals_total",
            "Connections and requests that were refused, by reason.",
            ("reason",),
            registry=self._registry,
        )

    def expect(self, reasons: Iterable[str]) -> None:
        """Have a series for each of these before anything is refused: absent is not zero."""
        for reason in reasons:
            self._refusals.labels(reason)

    def scraped(self, seconds: float) -> None:
        """Count a scrape that was served in this time."""
        self._scrapes.observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a connection or request that was refused."""
        self._refusals.labels(reason).inc()

    def render(self) -> bytes:
        """All families of serving, in text format 0.0.4."""
        return generate_latest(self._registry)
