# SPDX-License-Identifier: Apache-2.0
"""What many agents that start together ask of the API server, from its audit log.

Requests a second are counted in windows of ten seconds and scaled to 5,000 agents. Dry
runs, which try the admission policies, are counted apart: they are no writes.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.cluster.startup_spread import LARGEST, WRITE_SECONDS
from api import keys
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.cluster.agents import Site, agent
from tests.cluster.fleet import add_nodes, publishing

AGENT = "system:serviceaccount:gpuscape:gpuscape-agent"
FLEET = 5000
"""How many agents figures are scaled to."""
WINDOW_SECONDS = 10
START_WITHIN_SECONDS = 30.0
SPREAD_SECONDS = LARGEST * WRITE_SECONDS[1]
"""Of the first writes, where nobody has set it."""
AGENTS = 205
PATIENCE_SECONDS = 300.0
"""Beyond the time within which all are to have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Peak requests a second, scaled to the whole fleet."""

    requests: float
    """Dry runs left out."""
    dry_runs: float
    node_writes: int
    """Of all agents together."""


def run(
    site: Site,
    folder: Path,
    *,
    nodes: int,
    publishers: int,
    processes: int,
    within: float,
    spread: float | None,
) -> Load:
    """Start them all and wait until each has published; without ``spread`` they ask how many."""
    every = add_nodes(site.plane, nodes)[: processes + publishers]
    mark = site.plane.mark()
    with contextlib.ExitStack() as stack:
        for at in range(processes):
            (place := folder / f"agent-{at}").mkdir()
            simulation = Simulation.create("a30-pair", place)
            options = {"GPUSCAPE_START_SPREAD": "" if spread is None else f"{spread}s"}
            stack.enter_context(agent(site, every[at], simulation, place, options=options))
        stack.enter_context(
            publishing(site, every[processes:], within_seconds=within, spread_seconds=spread)
        )
        latest = within + (SPREAD_SECONDS if spread is None else spread)
        until(lambda: published(site) >= set(every), latest + PATIENCE_SECONDS)
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


def whole(site: Site, folder: Path) -> Load:
    """5,000 Nodes, 200 publishers in this process and 5 agents, started within half a minute.

    All of them are told that there are 5,000.
    """
    site.count_agents(FLEET)
    return run(
        site,
        folder,
        nodes=FLEET,
        publishers=AGENTS - 5,
        processes=5,
        within=START_WITHIN_SECONDS,
        spread=None,
    )
