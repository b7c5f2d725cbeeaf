# SPDX-License-Identifier: Apache-2.0
"""A start without any setting, on a real API server: the agent asks how many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cluster.startup_spread import LARGEST
from api import keys, names
from kube.informer import ObjectSeen
from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, until
from tests.agent.virtual import VirtualRuntime
from tests.cluster.agents import Site, agent, has_topology
from tests.cluster.publishers import Publisher

pytestmark = pytest.mark.cluster

AGENT = "system:serviceaccount:gpuscape:gpuscape-agent"
SMALL_SECONDS = 15.0
NO_SETTING = {"GPUSCAPE_START_SPREAD": ""}


@pytest.fixture(autouse=True)
def no_daemonset(site: Site) -> Iterator[None]:
    """A test that makes one leaves none behind."""
    yield
    place = f"/apis/apps/v1/namespaces/{site.namespace}/daemonsets"
    site.plane.request("DELETE", f"{place}/{names.AGENT_DAEMON_SET}")


class Start:
    """One node's agent on a virtual clock; the watch is played, and opened when the agent may."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.node = site.plane.make_node()
        self.runtime: VirtualRuntime | None = None
        self.publisher = Publisher(
            site,
            self.node,
            clock=self._clock,
            sleep=self._sleep,
            trigger=self._trigger,
            start_spread_seconds=None,
            seed=seed,
        )
        self.runtime = VirtualRuntime({**self.publisher.ticks, "watch": self._watch})

    def run(self, seconds: float) -> None:
        """Let time pass."""
        assert self.runtime is not None
        self.runtime.run(seconds)

    def _clock(self) -> float:
        return self.runtime.now if self.runtime else 1000.0

    def _sleep(self, seconds: float) -> None:
        assert self.runtime is not None
        self.runtime.now += seconds

    def _trigger(self, tick: str) -> None:
        if self.runtime is not None:
            self.runtime.trigger(tick)

    def _watch(self, _now: float) -> float:
        if (wait := self.publisher.turn.until_watch()) > 0:
            return wait
        self.publisher.cluster.on_watch_event(ObjectSeen(object=self.site.node(self.node)))
        return 1.0


@pytest.mark.parametrize("agents", [1, 100])
def test_a_small_cluster_has_labels_a_quarter_of_a_minute_after_each_start(
    site: Site, agents: int
) -> None:
    site.count_agents(agents)
    for seed in range(3):
        start = Start(site, seed)
        mark = site.plane.mark()
        start.run(SMALL_SECONDS)
        assert has_topology(site, start.node)
        assert site.labels(start.node)[keys.FOUND] == "2"
        asked = Counter(
            (event["verb"], event["objectRef"]["resource"], event["responseStatus"]["code"])
            for event in site.plane.audit(since=mark, user=AGENT)
            if "dryRun=All" not in event["requestURI"]
        )
        once = [("get", "daemonsets", 200), ("create", "leases", 201), ("patch", "nodes", 200)]
        assert asked == dict.fromkeys(once, 1)
        start.publisher.client.close()


def test_in_the_largest_cluster_the_same_agent_waits_for_its_turn(site: Site) -> None:
    site.count_agents(LARGEST)
    start = Start(site, 1)
    start.run(SMALL_SECONDS)
    early = has_topology(site, start.node)
    start.run(140.0)
    start.publisher.client.close()
    assert not early
    assert has_topology(site, start.node)


def chosen(process: AgentProcess) -> list[object]:
    """The numbers of agents that the agent has gone by."""
    return [it["agents"] for it in process.logged if it["message"] == "start spread chosen"]


def test_an_agent_as_the_manifests_start_it_counts_itself_before_its_watch(
    site: Site, tmp_path: Path
) -> None:
    site.count_agents(3)
    node = site.plane.make_node()
    simulation = Simulation.create("a30-pair", tmp_path)
    mark = site.plane.mark()
    with agent(site, node, simulation, tmp_path, options=NO_SETTING) as process:
        until(lambda: has_topology(site, node))
        assert chosen(process) == [3]
    asked = [
        (event["verb"], event["objectRef"]["resource"])
        for event in site.plane.audit(since=mark, user=AGENT)
        if "dryRun=All" not in event["requestURI"]
    ]
    assert asked[:2] == [("get", "daemonsets"), ("watch", "nodes")]


def test_an_agent_without_its_daemonset_takes_the_cluster_for_the_largest(
    site: Site, tmp_path: Path
) -> None:
    node = site.plane.make_node()
    simulation = Simulation.create("a30-pair", tmp_path)
    with agent(site, node, simulation, tmp_path, options=NO_SETTING) as process:
        until(lambda: bool(chosen(process)))
        assert chosen(process) == [LARGEST]
        (why,) = [it["why"] for it in process.logged if it["message"] == "agents not counted"]
    assert "not found" in str(why)
