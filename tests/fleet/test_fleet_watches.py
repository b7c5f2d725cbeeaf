# SPDX-License-Identifier: Apache-2.0
"""The watches on an API server: what comes of each event, and what a heartbeat is worth."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from api import keys, names
from fleet.fleet_cache import FleetCache
from fleet.fleet_watches import FleetWatches
from fleet.rollout_memory import EMPTY
from fleet.slot_gate import FleetView
from kube.api import LEASES, NODES, PODS
from kube.api_errors import Forbidden, Unreachable
from tests.fakes.api import FakeApi, Server
from tests.fleet.simulated_fleet import TERMS, agent_notes
from tests.log_lines import log_lines

SOON = 30.0
R = f"{1:016x}"


class Followed:
    """A cache behind its watches, and a signal for each change."""

    def __init__(self, server: Server) -> None:
        self.api = FakeApi(server, manager=names.COORDINATOR)
        self.cache = FleetCache(TERMS)
        self.changes = threading.Semaphore(0)
        self.watches = FleetWatches(
            self.api, self.cache, self.changes.release, uniform=lambda _low, _high: 0.0
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        self.watches.start()
        try:
            yield
        finally:
            self.api.end_watches()
            self.watches.close()

    def view(self) -> FleetView:
        return self.cache.view(EMPTY, is_paused=False)

    def until(self, holds: object) -> None:
        """Wait for changes until something holds."""
        assert callable(holds)
        while not holds():
            assert self.changes.acquire(timeout=SOON)


def node(name: str) -> dict[str, object]:
    notes = agent_notes(R, "sevenths", "waiting")
    return {"metadata": {"name": name, "annotations": notes}}


def holders(of: Followed) -> list[str]:
    return [slot.holder for slot in of.view().slots]


def pod(name: str, resource: str = "nvidia.com/gpu") -> dict[str, object]:
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    return {"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": [container]}}


def test_nodes_pods_and_slots_come_and_go() -> None:
    server = Server()
    server.create(NODES, node("n"))
    server.create(NODES, {"metadata": {"name": "cpu"}})
    server.create(PODS, pod("gpu"), "default")
    server.create(PODS, pod("other", "cpu"), "default")
    lease = {"metadata": {"name": "mig-slot-0"}, "spec": {"holderIdentity": "n"}}
    server.create(LEASES, lease, names.NAMESPACE)
    server.create(LEASES, {"metadata": {"name": "gpuscape-n"}}, names.NAMESPACE)
    of = Followed(server)
    with of.running():
        of.until(lambda: of.cache.is_synced)
        view = of.view()
        assert list(view.nodes) == ["n"]
        assert [pod.name for pod in view.pods["n"]] == ["gpu"]
        assert [slot.holder for slot in view.slots] == ["n"]
        assert of.watches.down == {}

        server.patch(PODS, "gpu", {"status": {"phase": "Succeeded"}}, "default", status=True)
        of.until(lambda: of.view().pods["n"] == ())
        server.patch(NODES, "cpu", {"metadata": {"annotations": {keys.MIG_PERMIT: "{"}}})
        of.until(lambda: set(of.view().nodes) == {"n", "cpu"})
        while of.changes.acquire(blocking=False):
            pass  # those of what is there by now
        server.patch(LEASES, "mig-slot-0", {"spec": {"holderIdentity": "cpu"}}, names.NAMESPACE)
        assert of.changes.acquire(timeout=SOON)
        assert holders(of) == ["cpu"]
        server.delete(LEASES, "mig-slot-0", names.NAMESPACE)
        of.until(lambda: of.view().slots == ())
        server.delete(NODES, "n")
        of.until(lambda: set(of.view().nodes) == {"cpu"})


def test_a_kubelets_heartbeat_is_no_reason_for_another_round() -> None:
    cache = FleetCache(TERMS)
    server = Server()
    ready = {"type": "Ready", "status": "True"}
    assert cache.node(server.create(NODES, node("n")))
    status = {"status": {"conditions": [ready | {"lastHeartbeatTime": "1"}]}}
    assert cache.node(server.patch(NODES, "n", status, status=True))
    status = {"status": {"conditions": [ready | {"lastHeartbeatTime": "2"}]}}
    beat = server.patch(NODES, "n", status, status=True)
    assert not cache.node(beat)
    version = beat["metadata"]["resourceVersion"]
    assert cache.view(EMPTY, is_paused=False).nodes["n"].version == version
    made = server.create(PODS, pod("gpu"), "default")
    assert cache.pod(made)
    assert not cache.pod(made)


def test_an_answer_that_is_newer_than_the_watch_stays() -> None:
    cache = FleetCache(TERMS)
    server = Server()
    old = server.create(NODES, node("n"))
    new = server.patch(NODES, "n", {"spec": {"unschedulable": True}})
    cache.node(new)
    cache.node(old)
    assert cache.view(EMPTY, is_paused=False).nodes["n"].unschedulable
    again = old | {"metadata": old["metadata"] | {"uid": "another"}}
    cache.node(again)  # made anew: its versions are another count
    assert not cache.view(EMPTY, is_paused=False).nodes["n"].unschedulable


def test_after_a_loss_the_cache_is_as_the_store_was_put_back() -> None:
    server = Server()
    server.create(NODES, node("n"))
    lease = {"metadata": {"name": "mig-slot-0"}, "spec": {"holderIdentity": "n"}}
    server.create(LEASES, lease, names.NAMESPACE)
    backup = server.backup()
    of = Followed(server)
    with of.running():
        of.until(lambda: of.cache.is_synced)
        server.patch(NODES, "n", {"spec": {"unschedulable": True}})
        server.create(NODES, node("new"))
        holder = {"spec": {"holderIdentity": "new"}}
        server.patch(LEASES, "mig-slot-0", holder, names.NAMESPACE)
        of.until(lambda: set(of.view().nodes) == {"n", "new"} and holders(of) == ["new"])

        server.restore(backup)
        of.api.break_watches(Unreachable("reset"))

        of.until(lambda: set(of.view().nodes) == {"n"} and holders(of) == ["n"])
        assert not of.view().nodes["n"].unschedulable


def test_a_proof_that_the_store_was_put_back_reads_all_anew() -> None:
    """Where the server stayed, so that no watch was lost."""
    server = Server()
    server.create(NODES, node("n"))
    backup = server.backup()
    of = Followed(server)
    with of.running():
        of.until(lambda: of.cache.is_synced)
        server.patch(NODES, "n", {"spec": {"unschedulable": True}})
        of.until(lambda: of.view().nodes["n"].unschedulable)

        server.restore(backup)
        of.watches.start_anew()

        of.until(lambda: not of.view().nodes["n"].unschedulable)
        of.until(lambda: of.watches.down == {})


def test_a_watch_that_is_not_allowed_names_the_manifests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of = Followed(Server())
    of.api.fail("watch", Forbidden("403"), resource=PODS)
    with of.running():
        of.until(lambda: of.cache.is_synced)
    lost = [fields for _, text, fields in log_lines(caplog) if text == "watch lost"]
    assert lost == [
        {
            "source": "pods",
            "why": "403; the account may not watch pods: apply deploy/coordinator",
        }
    ]
