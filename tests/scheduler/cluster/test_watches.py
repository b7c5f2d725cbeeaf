# SPDX-License-Identifier: Apache-2.0
"""The cache, fed by watches of an API server in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from api import keys, names
from kube.api import LEASES, NODES, PODS, Object
from kube.api_errors import Forbidden, Unreachable
from kube.informer import CacheSynced, ObjectSeen, WatchConnected, WatchLost
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.cluster.pod_gpu_request import GPU, Rules
from scheduler.cluster.watches import Watches
from tests.fakes.api import Call, FakeApi
from tests.kube.clocks import none
from tests.scheduler.fleets import DEADLINE_SECONDS, LowestTables, lease, topology, until


def node(name: str = "a") -> Object:
    """A Node whose agent has been there."""
    return {
        "metadata": {
            "name": name,
            "annotations": {keys.TOPOLOGY: topology()},
            "labels": {keys.CLIQUE: "c.1", keys.GPU_PRODUCT: "V100"},
        },
        "status": {"allocatable": {GPU: "8"}},
    }


def pod(name: str, gpus: str | None = "2", node: str | None = "a", **spec: Any) -> Object:
    """A pod of one container; without GPUs where there is no number."""
    limits = {} if gpus is None else {GPU: gpus}
    bound = {} if node is None else {"nodeName": node}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, **bound, **spec},
    }


class Stage:
    """A server with the node ``a``, its agent's Lease, and whoever watches them."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.api.server.create(NODES, node())
        self.renew()
        self.cache = NodeCache(LowestTables())
        self.watches = Watches(self.api, self.cache, uniform=none)

    def renew(self, name: str = "gpuscape-a", owners: tuple[str, ...] = (), **facts: Any) -> None:
        """The agent writes its Lease, owned by these Nodes."""
        made = lease(**facts)
        meta = {
            "name": name,
            "annotations": made["metadata"]["annotations"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": owner}
                for owner in owners
            ],
        }
        spec = {"holderIdentity": "agent", "leaseDurationSeconds": 180}
        body = {"metadata": meta, "spec": spec}
        server = self.api.server
        if any(it["metadata"]["name"] == name for it in server.objects(LEASES)):
            server.patch(LEASES, name, body, names.NAMESPACE)
        else:
            server.create(LEASES, body, names.NAMESPACE)

    def start(self) -> None:
        """Watch, and wait until all is told."""
        self.watches.start()
        until(lambda: self.cache.synced)

    def free(self, node: str = "a") -> int | NoView:
        """What is believed."""
        view = self.cache.view(node)
        return view.free if isinstance(view, ScoringView) else view

    def bind(self, body: Object) -> Object:
        """A pod that is bound from its first moment."""
        return self.api.server.create(PODS, body, "default")

    def finish(self, name: str) -> None:
        """The pod ends."""
        self.api.server.patch(
            PODS, name, {"status": {"phase": "Succeeded"}}, "default", status=True
        )


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Closed at the end."""
    stage = Stage()
    yield stage
    stage.api.end_watches()
    stage.watches.close()


def test_what_exists_is_known_when_all_is_told(stage: Stage) -> None:
    stage.bind(pod("p"))

    stage.start()

    assert stage.cache.view("a") == ScoringView(
        gen=stage.cache.view("a").gen,  # type: ignore[union-attr]  # else it is not equal
        free=0b11111100,
        ok=0xFF,
        clique="c.1",
        product="V100/8",
    )


def test_what_happens_later_is_followed(stage: Stage) -> None:
    stage.start()

    stage.bind(pod("p"))
    until(lambda: stage.free() == 0b11111100)
    stage.renew(pods={"p": 0b11000000})
    until(lambda: stage.free() == 0b00111111)
    stage.finish("p")
    until(lambda: stage.free() == 0b11111111)
    stage.api.server.delete(NODES, "a")
    until(lambda: stage.free() is NoView.UNKNOWN_NODE)


def test_the_lease_of_a_long_named_node_is_that_nodes_by_its_owner(stage: Stage) -> None:
    """The cut name does not hold the node's; the owner does, and a foreign owner does not."""
    name = "n" * 252 + "z"
    stage.api.server.create(NODES, node(name))
    stage.renew(names.agent_lease(name), owners=("other", name))
    stage.start()
    until(lambda: stage.free(name) == 0b11111111)

    stage.api.server.delete(LEASES, names.agent_lease(name), names.NAMESPACE)

    until(lambda: stage.free(name) is NoView.NO_STATE)


def test_a_pod_counts_from_its_binding_on(stage: Stage) -> None:
    made = pod("p", node=None)
    stage.api.server.create(PODS, made, "default")
    stage.start()
    unbound = stage.free()

    stage.api.server.patch(PODS, "p", {"spec": {"nodeName": "a"}}, "default")
    until(lambda: stage.free() == 0b11111100)

    assert unbound == 0b11111111


def test_pods_without_gpus_are_not_even_read(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    web = pod("web", gpus=None)
    web["spec"]["containers"][0]["restartPolicy"] = 5  # of which reading it would complain
    stage.bind(web)
    stage.bind(pod("none", gpus="0"))
    stage.start()
    stage.bind(pod("last"))
    until(lambda: stage.free() == 0b11111100)

    assert caplog.records == []

    detail = stage.cache.detail("a")
    assert detail is not None
    assert [each.ask.name for each in detail.pods] == ["last"]


def test_pods_that_are_there_from_the_start_count_in_the_order_of_their_binding(
    stage: Stage,
) -> None:
    for name, second in (("first-by-name", 2), ("second-by-name", 1)):
        stage.bind(pod(name))
        at = f"2026-11-21T10:00:0{second}Z"
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
        status = {"status": {"conditions": [condition]}}
        stage.api.server.patch(PODS, name, status, "default", status=True)

    stage.start()

    detail = stage.cache.detail("a")
    assert detail is not None
    assert [each.ask.name for each in detail.pods] == ["second-by-name", "first-by-name"]


def test_init_containers_count(stage: Stage) -> None:
    container = {"name": "i", "image": "i", "resources": {"requests": {GPU: "4"}}}
    stage.bind(pod("p", gpus=None, initContainers=[container]))

    stage.start()

    assert stage.free() == 0b11110000


def test_leases_of_others_are_nothing_to_us(stage: Stage) -> None:
    stage.renew("coordinator", ok=0)
    stage.renew("mig-slot-0", ok=0)
    stage.api.server.create(
        LEASES, {"metadata": {"name": "gpuscape-a"}, "spec": {"holderIdentity": "x"}}, "default"
    )

    stage.start()

    assert stage.free() == 0b11111111
    assert stage.cache.detail("coordinator") is None
    assert stage.cache.detail("mig-slot-0") is None


def test_nodes_are_asked_for_by_their_metadata_and_pods_when_they_are_bound(stage: Stage) -> None:
    stage.start()

    calls = {call.resource.plural: call for call in stage.api.calls}
    assert calls["nodes"].metadata_only
    assert calls["pods"].fields == {"spec.nodeName!": ""}
    assert calls["leases"].namespace == "gpuscape"


def test_what_happened_out_of_sight_is_found(stage: Stage) -> None:
    stage.bind(pod("p"))
    stage.start()

    stage.api.fail("watch", Unreachable("away"), times=3)
    stage.api.break_watches(Unreachable("reset"))
    stage.api.server.delete(PODS, "p", "default")
    stage.bind(pod("q", "4"))
    stage.api.server.delete(LEASES, "gpuscape-a", names.NAMESPACE)
    stage.renew(pods={"q": 0b11110000})
    stage.api.server.forget_history()

    until(lambda: stage.free() == 0b00001111)


def test_a_pod_that_makes_no_sense_is_passed_over(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    odd = pod("odd", labels=None)
    odd["metadata"] |= {"namespace": "default", "uid": 5}

    stage.watches.take_pod(ObjectSeen(object=odd))

    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("WARNING", "pod not counted")
    assert (vars(line)["pod"], vars(line)["why"]) == (
        "odd",
        "Expected `str`, got `int` - at `$.metadata.uid`",
    )


def test_gpus_of_another_name_are_watched_for() -> None:
    api = FakeApi()
    cache = NodeCache(LowestTables())
    watches = Watches(api, cache, rules=Rules(gpu="example.com/gpu"))
    body = pod("p", gpus=None)
    body["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    api.server.create(PODS, body, "default")

    watches.start()
    until(lambda: cache.detail("a") is not None)
    api.end_watches()
    watches.close()


def test_what_is_not_heard_of_is_named_with_its_cause_until_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    watches = Watches(FakeApi(), NodeCache(LowestTables()))
    for _ in range(2):
        watches.take_pod(WatchLost(error=Forbidden("watch pods: 403: no")))
    watches.take_node(WatchLost(error=Unreachable("watch nodes: reset")))
    down = watches.down
    watches.take_lease(WatchConnected())  # for the first time
    watches.take_pod(WatchConnected())
    watches.take_lease(CacheSynced())

    refused = "watch pods: 403: no; the account may not watch pods: apply deploy/scheduler"
    assert down == {CacheSource.PODS: refused, CacheSource.NODES: "watch nodes: reset"}
    assert list(watches.down) == [CacheSource.NODES]
    lines = [vars(record) for record in caplog.records]
    assert [(each["levelname"], each["message"], each["source"]) for each in lines] == [
        ("WARNING", "watch lost", "pods"),
        ("WARNING", "watch lost", "nodes"),
        ("INFO", "watch reconnected", "pods"),
        ("INFO", "cache synced", "leases"),
    ]
    assert [each.get("why") for each in lines] == [refused, "watch nodes: reset", None, None]


def test_a_watch_that_is_lost_for_another_reason_is_named_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watches = Watches(FakeApi(), NodeCache(LowestTables()))
    for text in ("reset", "away", "away"):
        watches.take_node(WatchLost(error=Unreachable(text)))

    assert [vars(record)["why"] for record in caplog.records] == ["reset", "away"]
    assert watches.down == {CacheSource.NODES: "away"}


def test_closing_does_not_wait_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube.watched_sources._END_SECONDS", 0.01)
    asked, answered = threading.Event(), threading.Event()

    def hang(_: Call) -> None:
        asked.set()
        answered.wait()

    api = FakeApi()
    api.before("watch", hang, times=None)
    watches = Watches(api, NodeCache(LowestTables()), uniform=none)
    watches.start()
    assert asked.wait(DEADLINE_SECONDS)
    watches.close()
    answered.set()


def test_news_of_many_pods_are_taken_in_a_few_rests_and_the_first_ones_in_none() -> None:
    now, rests = [0.0], []

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds

    cache = NodeCache(LowestTables())
    watches = Watches(FakeApi(), cache, clock=lambda: now[0], sleep=sleep)

    def hear(first: int) -> None:
        for number in range(first, first + 100):
            now[0] += 0.001
            body = pod(f"p{number}")
            body["metadata"] |= {"namespace": "default", "uid": f"u{number}"}
            watches.take_pod(ObjectSeen(object=body))

    hear(0)
    assert rests == []
    for source in CacheSource:
        cache.mark_synced(source)
    hear(100)
    assert 5 <= len(rests) <= 15
