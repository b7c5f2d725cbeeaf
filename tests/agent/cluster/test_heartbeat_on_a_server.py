# SPDX-License-Identifier: Apache-2.0
"""The Lease on a real API server: what the in-memory one lets through, this one must as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from agent.cluster.heartbeat import CHECK_SECONDS, RENEW_SECONDS, Heartbeat, State
from api import names
from kube.api import LEASES, NODES, Object
from kube.api_errors import NotFound
from kube.client import ApiClient
from tests.kube.clusters import client

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster
NAMESPACE = "default"
STATE = "gpuscape.io/state"


def always(text: str) -> State:
    """A state that does not ask what stood there before."""
    return lambda _shown: text


class OnServer:
    """A Node of its own, agents on it, and their clock."""

    def __init__(self, plane: Plane, api: ApiClient) -> None:
        self.plane = plane
        self.api = api
        self.node = plane.make_node()
        self.now = 1000.0

    def agent(self, identity: str) -> Heartbeat:
        """One that has done nothing yet."""
        return Heartbeat(
            self.api,
            node_name=self.node,
            node=lambda: self.api.get(NODES, self.node),
            identity=identity,
            namespace=NAMESPACE,
            clock=lambda: self.now,
            wall=lambda: datetime.now(UTC),
            uniform=lambda _, most: most,
        )

    def beat(self, agent: Heartbeat, *, after: float = 0.0) -> float:
        """One beat, so many seconds later."""
        self.now += after
        return agent.beat(self.now)

    @property
    def lease(self) -> Object:
        """As it is on the server."""
        return self.api.get(LEASES, names.agent_lease(self.node), namespace=NAMESPACE)


@contextmanager
def on(plane: Plane) -> Iterator[OnServer]:
    """Until the block ends."""
    api = client(names.AGENT, plane.kubeconfig())
    try:
        yield OnServer(plane, api)
    finally:
        api.close()


@pytest.fixture
def server(any_plane: Plane) -> Iterator[OnServer]:
    """On each Kubernetes that is served."""
    with on(any_plane) as server:
        yield server


def waited(is_so: Callable[[], bool]) -> None:
    """Poll until it is so."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_server_takes_a_lease_its_renewals_and_its_states(server: OnServer) -> None:
    """As they were meant."""
    agent = server.agent("pod-1")
    server.beat(agent)
    made = server.lease

    agent.show(always('{"v":1}'))
    server.beat(agent, after=RENEW_SECONDS)

    after = server.lease
    assert agent.holds
    assert after["metadata"]["annotations"] == {STATE: '{"v":1}'}
    assert [owner["kind"] for owner in after["metadata"]["ownerReferences"]] == ["Node"]
    assert after["spec"]["holderIdentity"] == "pod-1"
    assert after["spec"]["acquireTime"] == made["spec"]["acquireTime"]
    assert after["spec"]["renewTime"] > made["spec"]["renewTime"]


def test_a_second_agent_waits_until_the_first_one_leaves(server: OnServer) -> None:
    """The server takes an empty holder."""
    first, second = server.agent("pod-1"), server.agent("pod-2")
    server.beat(first)
    server.beat(second)
    waiting = (second.holds, second.other)

    first.leave()
    left = server.lease["spec"].get("holderIdentity", "")
    server.beat(second, after=CHECK_SECONDS)

    assert (waiting, left) == ((False, "pod-1"), "")
    assert (first.holds, second.holds) == (False, True)
    assert server.lease["spec"]["holderIdentity"] == "pod-2"


def test_who_was_overtaken_is_refused_and_only_reads(server: OnServer) -> None:
    """It comes back after a silence and does not know yet; the server does."""
    first, second = server.agent("pod-1"), server.agent("pod-2")
    server.beat(first)
    server.beat(second)
    server.beat(second, after=181)
    taken = second.holds

    wait = server.beat(first)
    lost = (first.holds, wait)
    server.beat(first)

    assert taken
    assert lost == (False, 1.0)
    assert (first.holds, first.other) == (False, "pod-2")


def test_a_lease_goes_with_its_node_and_is_made_anew_with_the_next(plane: Plane) -> None:
    """The garbage collector removes it by the owner's UID."""
    with on(plane) as server:
        agent = server.agent("pod-1")
        server.beat(agent)
        old = server.lease["metadata"]["uid"]
        plane.request("DELETE", f"/api/v1/nodes/{server.node}")
        waited(lambda: gone(server))
        plane.make_node(server.node)

        server.beat(agent, after=RENEW_SECONDS)
        lost = agent.holds
        server.beat(agent)

        assert (lost, agent.holds) == (False, True)
        assert server.lease["metadata"]["uid"] != old


def gone(server: OnServer) -> bool:
    """Whether there is no Lease any more."""
    try:
        server.lease  # noqa: B018  # asking is the point
    except NotFound:
        return True
    return False
