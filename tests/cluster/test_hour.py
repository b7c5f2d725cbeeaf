"""What an hour costs the API server, from its audit log: an hour of virtual time.

Every tick runs at its own time on a virtual clock, which also paces the client; requests
go to a real API server with the agent's own bound token. Instead of a watch, the Node is
read by the admin every five virtual seconds and told as a watch would tell it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from discovery.model import GpuState
from kube.follow import Seen
from labelers import keys
from tests.agent.virtual import VirtualRuntime
from tests.cluster.agents import Site, has_topology
from tests.cluster.publishers import Publisher

pytestmark = pytest.mark.cluster

AGENT = "system:serviceaccount:gpuscape:gpuscape-agent"
HOUR = 3600.0


class Hour:
    """One node's agent on a virtual clock."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.node = site.plane.make_node()
        self.runtime: VirtualRuntime | None = None
        self.publisher = Publisher(site, self.node, clock=self._clock, sleep=self._sleep)
        ticks = {
            **self.publisher.cluster.ticks,
            "publish": self.publisher.publish,
            "watch": self._tell,
            "pods": self._churn,
        }
        self.runtime = VirtualRuntime(ticks)
        self.publisher.cluster.hasten = self.runtime.hasten
        self._pods = 0

    def run(self, seconds: float) -> list[dict[str, Any]]:
        """Let time pass; the agent's requests meanwhile, dry runs left out."""
        assert self.runtime is not None
        mark = self.site.plane.mark()
        self.runtime.run(seconds)
        return [
            event
            for event in self.site.plane.audit(since=mark, user=AGENT)
            if "dryRun=All" not in event["requestURI"]
        ]

    def _clock(self) -> float:
        return self.runtime.now if self.runtime else 1000.0

    def _sleep(self, seconds: float) -> None:
        assert self.runtime is not None
        self.runtime.now += seconds

    def _tell(self, _now: float) -> float:
        self.publisher.cluster.hear(Seen(object=self.site.node(self.node)))
        return 5.0

    def _churn(self, now: float) -> float:
        """A pod comes or goes every half minute; then the kubelet is asked."""
        self._pods += 1
        if self._pods % 6 == 0:
            held = self.publisher.kubelet.held
            if held:
                held.popitem()
            else:
                held[f"pod-{self._pods}"] = self._pods // 6 % 2
        return float(self.publisher.cluster.ticks["pods"](now))


@pytest.fixture(scope="module")
def hour(site: Site) -> Iterator[Hour]:
    """An agent that has published and settled."""
    hour = Hour(site)
    hour.run(60.0)
    assert has_topology(site, hour.node)
    yield hour
    hour.publisher.client.close()


def counted(events: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((event["verb"], event["objectRef"]["resource"]) for event in events)


def test_a_steady_hour_with_pods_coming_and_going_writes_no_node(hour: Hour) -> None:
    asked = counted(hour.run(HOUR))
    assert {resource for _, resource in asked} == {"leases"}
    # a heartbeat a minute, and the state of each change of pods
    assert 60 <= asked["patch", "leases"] <= 60 + 2 * 60


def test_one_real_change_takes_at_most_two_writes_of_the_node(hour: Hour) -> None:
    whole = hour.publisher.snapshot
    lost = replace(whole.gpus[0], state=GpuState.LOST)
    hour.publisher.snapshot = replace(whole, gpus=(lost, *whole.gpus[1:]))
    writes = counted(hour.run(HOUR))["patch", "nodes"]
    assert hour.site.labels(hour.node)[keys.FOUND] == "1"
    assert 1 <= writes <= 2
