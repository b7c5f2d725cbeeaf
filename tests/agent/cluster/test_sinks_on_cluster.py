# SPDX-License-Identifier: Apache-2.0
"""The sinks on a real API server: who owns which field there, and what the audit log counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.cluster.feature_sink import FeatureSink
from agent.cluster.node_sink import NodeSink
from api import keys, names
from kube.api import NODE_FEATURES, NODES, Object
from kube.api_errors import NotFound
from kube.client import ApiClient
from kube.informer import Informer, ObjectGone, ObjectSeen, WatchEvent
from labelers.decision import Absent, Decisions, Value
from labelers.node_patch import plan_node_patch
from tests.kube.clusters import client

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster

MODE, COUNT, PRODUCT = "nvidia.com/gpu.mode", "nvidia.com/gpu.count", "nvidia.com/gpu.product"
EIGHT: Decisions = {MODE: Value(text="compute"), COUNT: Value(text="8")}
SEVEN: Decisions = {MODE: Value(text="compute"), COUNT: Value(text="7")}
TOPOLOGY: Decisions = {keys.TOPOLOGY: Value(text='{"v":1}')}
SECONDS = 60.0
"""How long something real is waited for."""


@pytest.fixture
def api(any_plane: Plane) -> ApiClient:
    """Our client, as an admin: what the agent's own rights are is tested elsewhere."""
    return client(names.AGENT, any_plane.kubeconfig())


class Running:
    """A sink that follows its Node on the real server, with a clock that the test moves on."""

    def __init__(self, api: ApiClient, name: str, saw: Callable[[Object | None], None]) -> None:
        self._saw = saw
        self.seen: list[Object | None] = []
        self._informer = Informer(api, NODES, self._hear, name=name)
        self._thread = threading.Thread(target=self._informer.run, daemon=True)
        self._thread.start()

    def _hear(self, news: WatchEvent) -> None:
        match news:
            case ObjectSeen(object=node):
                self._saw(node)
                self.seen.append(node)
            case ObjectGone():
                self._saw(None)
                self.seen.append(None)

    def end(self) -> None:
        self._informer.close()
        self._thread.join(SECONDS)


class Clock:
    """Seconds that pass as fast as the test wants."""

    def __init__(self) -> None:
        self.now = 1000.0

    def until(self, tick: Callable[[float], float], done: Callable[[], bool]) -> None:
        """Tick, a second every 10 ms, until it is done."""
        deadline = time.monotonic() + SECONDS
        while not done():
            assert time.monotonic() < deadline, "waited in vain"
            tick(self.now)
            self.now += 1
            time.sleep(0.01)

    def run(self, tick: Callable[[float], float], seconds: int) -> None:
        """Tick each second of so many."""
        for _ in range(seconds):
            tick(self.now)
            self.now += 1


@pytest.fixture
def running() -> Iterator[Callable[[ApiClient, str, Callable[[Object | None], None]], Running]]:
    """Starts informers, and ends them."""
    started: list[Running] = []

    def start(api: ApiClient, name: str, saw: Callable[[Object | None], None]) -> Running:
        started.append(Running(api, name, saw))
        return started[-1]

    yield start
    for one in started:
        one.end()


Start = Callable[[ApiClient, str, Callable[[Object | None], None]], Running]


def meta(api: ApiClient, name: str) -> dict[str, Any]:
    """The Node's metadata."""
    found: dict[str, Any] = api.get(NODES, name)["metadata"]
    return found


def shows(api: ApiClient, name: str, labels: Mapping[str, str | None]) -> bool:
    """Whether the Node has these labels; None for one that it must not have."""
    there = meta(api, name)["labels"]
    return all(there.get(key) == text for key, text in labels.items())


def apply(plane: Plane, name: str, labels: Mapping[str, str], manager: str) -> None:
    """Server-side apply, as GitOps tools do it."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels)}}
    path = f"/api/v1/nodes/{name}?fieldManager={manager}&force=true"
    plane.demand("PATCH", path, body, content_type="application/apply-patch+yaml")


def applied_entries(of: Mapping[str, Any]) -> list[Object]:
    """What an admission policy compares."""
    return [entry for entry in of["managedFields"] if entry["operation"] == "Apply"]


def node_writes(plane: Plane, name: str, since: int) -> list[Any]:
    """Writes of the Node by a sink, not by those who play the kubelet and the admin."""
    events = plane.audit(since=since, resource="nodes", name=name, verb="patch")
    return [event for event in events if "fieldManager=gpuscape-agent" in event["requestURI"]]


def sink(api: ApiClient, name: str) -> NodeSink:
    """A Node sink that may write."""
    return NodeSink(api, name, may_write=lambda: True)


def test_a_key_that_is_applied_is_left_out_and_its_entry_stays_untouched(
    any_plane: Plane, api: ApiClient
) -> None:
    name = any_plane.make_node()
    apply(any_plane, name, {MODE: "graphics", "team": "a"}, "argocd")
    apply(any_plane, name, {COUNT: "8"}, "flux")
    before = api.get(NODES, name)

    planned = plan_node_patch(before, {**EIGHT, PRODUCT: Value(text="H200")}, TOPOLOGY)
    after = api.patch(NODES, name, planned.patch)
    reckless = {"metadata": {"labels": {MODE: "compute"}}}
    overwritten = api.patch(NODES, name, reckless, dry_run=True)

    assert list(planned.left_alone) == [MODE]
    assert "argocd" in planned.left_alone[MODE]
    assert applied_entries(after["metadata"]) == applied_entries(before["metadata"])
    assert applied_entries(overwritten["metadata"]) != applied_entries(before["metadata"])
    assert after["metadata"]["labels"][MODE] == "graphics"
    assert after["metadata"]["labels"][PRODUCT] == "H200"


def test_an_applied_key_is_not_removed_either_but_one_that_was_let_go_is(
    any_plane: Plane, api: ApiClient
) -> None:
    name = any_plane.make_node()
    apply(any_plane, name, {MODE: "graphics"}, "argocd")
    gone: Decisions = {MODE: Absent(reason="no GPU")}

    while_applied = plan_node_patch(api.get(NODES, name), gone, {})
    api.patch(NODES, name, {"metadata": {"labels": {MODE: "x"}}}, manager="kubectl-edit")
    afterwards = plan_node_patch(api.get(NODES, name), gone, {})

    assert while_applied.patch == {}
    assert afterwards.labels == {MODE: None}


def test_a_start_takes_a_watch_and_a_patch_and_a_change_takes_one_patch(
    any_plane: Plane, api: ApiClient, running: Start
) -> None:
    """The kubelet writes the status all the while, so the watch is never still."""
    name = any_plane.make_node()
    clock, ours = Clock(), sink(api, name)
    mark = any_plane.mark()
    running(api, name, ours.observe)

    def beat_and_tick(now: float) -> float:
        if now % 10 == 0:
            body = {"status": {"nodeInfo": {"bootID": str(now)}}}
            any_plane.demand(
                "PATCH",
                f"/api/v1/nodes/{name}/status",
                body,
                content_type="application/merge-patch+json",
            )
        return ours.tick(now)

    ours.set_desired(EIGHT, TOPOLOGY)
    clock.until(beat_and_tick, lambda: shows(api, name, {COUNT: "8"}))
    at_start = [
        event["verb"]
        for event in any_plane.audit(since=mark, resource="nodes", name=name)
        if names.AGENT in event.get("userAgent", "") and event["verb"] != "get"  # the test's own
    ]
    ours.set_desired(SEVEN, TOPOLOGY)
    clock.until(beat_and_tick, lambda: shows(api, name, {COUNT: "7"}))
    clock.run(beat_and_tick, 300)

    assert sorted(at_start) == ["patch", "watch"]
    writes = node_writes(any_plane, name, mark)
    assert len(writes) == 2
    assert writes[1]["requestObject"] == {"metadata": {"labels": {COUNT: "7"}}}


def test_what_an_admin_edits_is_put_right_and_what_is_anothers_stays(
    any_plane: Plane, api: ApiClient, running: Start
) -> None:
    name = any_plane.make_node(labels={"zone": "a"})
    clock, ours = Clock(), sink(api, name)
    running(api, name, ours.observe)
    ours.set_desired(EIGHT, TOPOLOGY)
    clock.until(ours.tick, lambda: shows(api, name, {COUNT: "8"}))

    edit = {"labels": {COUNT: "1", MODE: None, "zone": "b"}, "annotations": {keys.TOPOLOGY: "x"}}
    any_plane.kubectl("patch", "node", name, "--type=merge", "-p", json.dumps({"metadata": edit}))
    clock.until(ours.tick, lambda: shows(api, name, {COUNT: "8", MODE: "compute", "zone": "b"}))

    assert meta(api, name)["annotations"][keys.TOPOLOGY] == '{"v":1}'


def test_a_node_made_anew_under_its_name_is_labelled_anew(
    any_plane: Plane, api: ApiClient, running: Start
) -> None:
    name = any_plane.make_node()
    clock, ours = Clock(), sink(api, name)
    running(api, name, ours.observe)
    ours.set_desired(EIGHT, {})
    clock.until(ours.tick, lambda: shows(api, name, {COUNT: "8"}))

    any_plane.demand("DELETE", f"/api/v1/nodes/{name}")
    any_plane.make_node(name)
    clock.until(ours.tick, lambda: shows(api, name, {COUNT: "8", MODE: "compute"}))


@pytest.fixture
def namespace(plane: Plane) -> str:
    """One, in a cluster that knows NodeFeatures."""
    from tests.controlplane.own import install_node_features

    install_node_features(plane)
    return plane.namespace()


def test_the_node_feature_is_as_the_server_wants_it_and_goes_with_its_node(
    plane: Plane, namespace: str, running: Start
) -> None:
    """Made, found again by a restarted agent, changed, collected with the Node, made anew."""
    api = client(names.AGENT, plane.kubeconfig())
    name = plane.make_node()

    def start() -> FeatureSink:
        sink = FeatureSink(api, name, namespace=namespace, may_write=lambda: True)
        running(api, name, sink.observe)
        return sink

    def spec() -> dict[str, Any]:
        try:
            found: dict[str, Any] = api.get(
                NODE_FEATURES, names.node_feature(name), namespace=namespace
            )
        except NotFound:
            return {}
        return found

    def says(count: str) -> bool:
        return bool(spec().get("spec", {}).get("labels", {}).get(COUNT) == count)

    clock, ours = Clock(), start()
    mark = plane.mark()
    ours.set_desired(EIGHT)
    clock.until(ours.tick, lambda: says("8"))
    again = start()
    again.set_desired(SEVEN)
    clock.until(again.tick, lambda: says("7"))
    clock.run(again.tick, 120)
    writes = [
        event["verb"]
        for event in plane.audit(since=mark, resource="nodefeatures", namespace=namespace)
        if event["verb"] in ("create", "patch", "update", "delete")
    ]
    plane.demand("DELETE", f"/api/v1/nodes/{name}")
    clock.until(lambda _: 0.0, lambda: spec() == {})
    plane.make_node(name)
    clock.until(again.tick, lambda: says("7"))

    assert writes == ["create", "patch"]
    (owner,) = spec()["metadata"]["ownerReferences"]
    assert owner["uid"] == meta(api, name)["uid"]


def make_feature(plane: Plane, namespace: str, name: str, labels: Mapping[str, str]) -> None:
    """As gpu-feature-discovery makes it, by its own field manager."""
    body = {
        "apiVersion": NODE_FEATURES.api_version,
        "kind": NODE_FEATURES.kind,
        "metadata": {
            "name": names.node_feature(name),
            "labels": {names.NODE_FEATURE_NODE_LABEL: name},
        },
        "spec": {"features": {}, "labels": dict(labels)},
    }
    plane.demand("POST", f"{features(namespace)}?fieldManager=gpu-feature-discovery", body)


def features(namespace: str) -> str:
    """Path of a namespace's NodeFeatures."""
    return f"/apis/{NODE_FEATURES.api_version}/namespaces/{namespace}/nodefeatures"


def test_a_node_feature_of_another_maker_is_recognised(plane: Plane, namespace: str) -> None:
    api = client(names.AGENT, plane.kubeconfig())
    name = plane.make_node()
    make_feature(plane, namespace, name, {COUNT: "4"})
    ours = FeatureSink(api, name, namespace=namespace, may_write=lambda: True)
    ours.observe(api.get(NODES, name))
    ours.set_desired(EIGHT)

    Clock().run(ours.tick, 60)

    after = api.get(NODE_FEATURES, names.node_feature(name), namespace=namespace)
    assert after["spec"]["labels"] == {COUNT: "4"}


def test_take_over_and_hand_back_leave_no_moment_without_labels(
    plane: Plane, namespace: str, tmp_path: Path
) -> None:
    """The real nfd-master, between gpu-feature-discovery's NodeFeature and ours beside it."""
    from tests.controlplane.own import start_nfd_master
    from tests.controlplane.programs import Programs

    api = client(names.AGENT, plane.kubeconfig())
    name, theirs = plane.make_node(), plane.namespace("gpu-operator")
    ours = FeatureSink(api, name, namespace=namespace, may_write=lambda: True)
    direct = sink(api, name)
    clock, path = Clock(), names.node_feature(name)

    def publish(product: str) -> None:
        ours.set_desired({**EIGHT, PRODUCT: Value(text=product)})
        clock.until(ours.tick, lambda: shows(api, name, {COUNT: "8", PRODUCT: product}))

    with Programs(tmp_path / "logs") as programs:
        start_nfd_master(plane, programs, (namespace, theirs))
        make_feature(plane, theirs, name, {COUNT: "8", MODE: "compute"})
        clock.until(lambda _: 0.0, lambda: shows(api, name, {COUNT: "8", MODE: "compute"}))
        mark = plane.mark()
        ours.observe(api.get(NODES, name))
        publish("A")
        plane.demand("DELETE", f"{features(theirs)}/{path}")
        publish("B")  # nfd-master has worked on the Node since
        make_feature(plane, theirs, name, {COUNT: "8", MODE: "compute"})
        publish("C")
        plane.demand("DELETE", f"{features(namespace)}/{path}")
        clock.until(lambda _: 0.0, lambda: shows(api, name, {COUNT: "8", PRODUCT: None}))
        direct.observe(api.get(NODES, name))
        direct.set_desired({COUNT: Value(text="7")}, {})
        clock.run(direct.tick, 60)

    written = plane.audit(since=mark, resource="nodes", name=name, verb=("patch", "update"))
    assert len(written) >= 4
    for event in written:
        labels = event["responseObject"]["metadata"]["labels"]
        assert {COUNT: "8", MODE: "compute"}.items() <= labels.items()
    assert node_writes(plane, name, mark) == []
