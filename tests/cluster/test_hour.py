# SPDX-License-Identifier: Apache-2.0
"""What an hour costs the API server, from its audit log: an hour of virtual time.

Every tick runs at its own time on a virtual clock, which also paces the client; requests
go to a real API server with the agent's own bound token. Instead of a watch, the Node is
read by the admin every five virtual seconds and told as a watch would tell it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api import keys
from discovery.model import GpuState
from kube.api_errors import Unreachable
from kube.informer import ObjectSeen, WatchLost
from tests.agent.virtual import VirtualRuntime
from tests.cluster.agents import Site, has_topology
from tests.cluster.publishers import Publisher
from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster

AGENT = "system:serviceaccount:gpuscape:gpuscape-agent"
HOUR = 3600.0


class Hour:
    """One node's agent on a virtual clock."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.node = site.plane.make_node()
        self.runtime: VirtualRuntime | None = None
        self.publisher = Publisher(
            site, self.node, clock=self._clock, sleep=self._sleep, trigger=self._trigger
        )
        ticks = {**self.publisher.ticks, "watch": self._tell, "pods": self._churn}
        self.runtime = VirtualRuntime(ticks)
        self._pods = 0

    def _trigger(self, tick: str) -> None:
        if self.runtime is not None:
            self.runtime.trigger(tick)

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

    def asked(self, seconds: float) -> int:
        """Let time pass; how often the agent asked, whatever came of it."""
        assert self.runtime is not None
        before = self.publisher.requests
        self.runtime.run(seconds)
        return self.publisher.requests - before

    def lose_a_gpu(self) -> None:
        """What one real change is."""
        whole = self.publisher.snapshot
        lost = replace(whole.gpus[0], state=GpuState.LOST)
        self.publisher.snapshot = replace(whole, gpus=(lost, *whole.gpus[1:]))

    def _clock(self) -> float:
        return self.runtime.now if self.runtime else 1000.0

    def _sleep(self, seconds: float) -> None:
        assert self.runtime is not None
        self.runtime.now += seconds

    def _tell(self, _now: float) -> float:
        try:
            self.publisher.cluster.on_watch_event(ObjectSeen(object=self.site.node(self.node)))
        except OSError as error:
            self.publisher.cluster.on_watch_event(WatchLost(error=Unreachable(str(error))))
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
        return self.publisher.pods.ask(now)


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
    hour.lose_a_gpu()
    writes = counted(hour.run(HOUR))["patch", "nodes"]
    assert hour.site.labels(hour.node)[keys.FOUND] == "1"
    assert 1 <= writes <= 2


def test_an_hour_without_the_api_server_costs_few_requests_and_is_soon_made_good(
    tmp_path: Path,
) -> None:
    with Plane.start(tmp_path / "plane", controller_manager=False) as plane:
        hour = Hour(Site.create(plane, "gpuscape"))
        hour.run(60.0)
        plane.stop_apiserver()
        requests = hour.asked(HOUR)
        hour.lose_a_gpu()
        plane.start_apiserver()
        hour.run(90.0)  # the longest wait for the Lease, and for what it lets be written
        assert hour.site.labels(hour.node)[keys.FOUND] == "1"
        assert requests <= 3 * HOUR / 60
        hour.publisher.client.close()
