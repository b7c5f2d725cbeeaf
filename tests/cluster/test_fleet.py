"""Many agents that start together: what they ask of the API server, and that all publish.

Requests a second are counted in the audit log, in windows of ten seconds, and scaled to
5,000 agents. Dry runs are counted apart: they are no writes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent.config import Settings
from discovery.simulator.simulation import Simulation
from labelers import keys
from tests.agent.processes import until
from tests.cluster.agents import Site, agent
from tests.cluster.fleet import add_nodes, publishing

pytestmark = pytest.mark.cluster

log = logging.getLogger(__name__)

AGENT = "system:serviceaccount:gpuscape:gpuscape-agent"
FLEET = 5000
WINDOW_SECONDS = 10
START_WITHIN_SECONDS = 30.0
MOST_REQUESTS_PER_SECOND = 250.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Peak requests a second, scaled to the whole fleet."""

    requests: float
    """Dry runs left out."""
    dry_runs: float
    node_writes: int
    """Of all agents together."""


def test_a_small_fleet_publishes_with_one_node_write_each(site: Site, tmp_path: Path) -> None:
    load = run(site, tmp_path, nodes=100, publishers=10, processes=1, within=2.0, spread=2.0)
    assert load.node_writes == 11


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_five_thousand_nodes_with_two_hundred_agents_that_start_within_half_a_minute(
    site: Site, tmp_path: Path
) -> None:
    load = run(
        site,
        tmp_path,
        nodes=5000,
        publishers=200,
        processes=5,
        within=START_WITHIN_SECONDS,
        spread=Settings().start_spread_seconds,
    )
    log.info("%s", load)  # shown by -o log_cli=true -o log_cli_level=INFO
    assert load.node_writes == 205
    assert load.requests <= MOST_REQUESTS_PER_SECOND


def run(
    site: Site,
    folder: Path,
    *,
    nodes: int,
    publishers: int,
    processes: int,
    within: float,
    spread: float,
) -> Load:
    """Start them all and wait until each has published."""
    names = add_nodes(site.plane, nodes)
    mark = site.plane.mark()
    with contextlib.ExitStack() as stack:
        for at in range(processes):
            (place := folder / f"agent-{at}").mkdir()
            simulation = Simulation.create("a30-pair", place)
            options = {"GPUSCAPE_START_SPREAD": f"{spread}s"}
            stack.enter_context(agent(site, names[at], simulation, place, options=options))
        ours = names[processes : processes + publishers]
        stack.enter_context(publishing(site, ours, within_seconds=within, spread_seconds=spread))
        every = names[: processes + publishers]
        until(lambda: all(keys.FOUND in site.labels(name) for name in every[-1:]), 300)
        until(lambda: published(site) >= set(every), 300)
        time.sleep(WINDOW_SECONDS if within > WINDOW_SECONDS else 0)
    return measured(site.plane.audit(since=mark, user=AGENT), len(every))


def published(site: Site) -> set[str]:
    """Nodes that have our labels."""
    found = site.plane.demand("GET", f"/api/v1/nodes?labelSelector={keys.FOUND}=2")
    return {node["metadata"]["name"] for node in found["items"]}


def measured(events: list[dict[str, Any]], agents: int) -> Load:
    """Peaks over windows of ten seconds."""
    real = [event for event in events if "dryRun=All" not in event["requestURI"]]
    dry = [event for event in events if "dryRun=All" in event["requestURI"]]
    writes = [
        event
        for event in real
        if event["verb"] == "patch" and event["objectRef"]["resource"] == "nodes"
    ]
    assert {event["responseStatus"]["code"] for event in writes} == {200}
    return Load(
        requests=peak(real) * FLEET / agents,
        dry_runs=peak(dry) * FLEET / agents,
        node_writes=len(writes),
    )


def peak(events: list[dict[str, Any]]) -> float:
    """Most requests a second in any window."""
    at = [datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp() for event in events]
    seconds = Counter(int(moment) for moment in at)
    starts = range(min(seconds), max(seconds) + 1)
    return max(
        sum(seconds[start + step] for step in range(WINDOW_SECONDS)) / WINDOW_SECONDS
        for start in starts
    )
