# SPDX-License-Identifier: Apache-2.0
"""What is kept of this node's pods: UID and the labels that were asked for."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from agent.pods.known_pods import KnownPod, KnownPods, chosen_labels, label_name
from agent.pods.resource_slices import FIELD
from api import names
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import PODS, Api, Object
from kube.api_errors import Forbidden, Unreachable
from kube.informer import (
    CacheSynced,
    Informer,
    ObjectGone,
    ObjectSeen,
    WatchConnected,
    WatchEvent,
    WatchLost,
)
from tests import exposition
from tests.fakes.api import FakeApi
from tests.kube.clusters import client
from tests.log_lines import whys

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

ALL: tuple[re.Pattern[str], ...] = ()


def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for text in texts)


def a_pod(
    name: str = "job",
    node: str = "node-a",
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
) -> Object:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


class Told:
    """Known pods and the agent's own metrics beside them."""

    def __init__(self, labels: tuple[re.Pattern[str], ...] | None = ALL) -> None:
        self.own = AgentMetrics("0", lambda: 0.0)
        self.pods = KnownPods(
            labels=labels,
            update_metrics=lambda change: change(self.own),
            wall=lambda: 1_700_000_000.0,
        )

    def up(self) -> float:
        return exposition.series(self.own.render())["gpuscape_source_up", (("source", "pods"),)]


def test_uid_and_labels_are_all_that_is_kept() -> None:
    known = Told().pods
    known.on_watch_event(ObjectSeen(object=a_pod(labels={"app": "train"})))

    there = KnownPod(
        namespace="default", name="job", uid="uid-job", ended=False, labels=(("app", "train"),)
    )
    assert known.named("default", "job") == known.by_uid("uid-job") == there
    assert known.named("other", "job") is None
    assert known.by_uid("uid-other") is None


STATIC = "36b6d6be73b1065af369b3985edafa09"


def a_mirror(name: str, **annotations: str) -> Object:
    pod = a_pod(name)
    written = {f"kubernetes.io/config.{key}": value for key, value in annotations.items()}
    return pod | {"metadata": pod["metadata"] | {"annotations": written}}


def test_a_static_pod_is_found_by_the_uid_that_its_kubelet_has() -> None:
    known = Told().pods
    known.on_watch_event(ObjectSeen(object=a_mirror("proxy", hash=STATIC, mirror=STATIC)))

    found = known.by_uid(STATIC)

    assert found is not None
    assert (found.name, found.uid) == ("proxy", "uid-proxy")
    assert known.by_uid("uid-proxy") == found


def test_no_pod_takes_the_place_of_another_by_an_annotation() -> None:
    """Anybody who may create a pod may annotate it."""
    known = Told().pods
    known.on_watch_event(ObjectSeen(object=a_mirror("a", hash="uid-job", mirror="uid-job")))
    known.on_watch_event(ObjectSeen(object=a_mirror("b", hash=STATIC)))
    known.on_watch_event(ObjectSeen(object=a_pod()))

    found = known.by_uid("uid-job")

    assert found is not None
    assert found.name == "job"
    assert known.by_uid(STATIC) is None


def test_no_label_is_kept_where_none_was_asked_for() -> None:
    known = Told(labels=None).pods
    known.on_watch_event(ObjectSeen(object=a_pod(labels={"app": "train"})))

    found = known.named("default", "job")
    assert found is not None
    assert (found.uid, found.labels) == ("uid-job", ())


def test_a_pod_that_changes_or_goes_is_followed() -> None:
    known = Told().pods
    known.on_watch_event(ObjectSeen(object=a_pod(labels={"app": "a"})))
    known.on_watch_event(ObjectSeen(object=a_pod(labels={"app": "b"})))
    changed = known.named("default", "job")
    known.on_watch_event(ObjectGone(namespace="default", name="job", uid="uid-job"))

    assert changed is not None
    assert changed.labels == (("app", "b"),)
    assert known.named("default", "job") is None


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True), ("", False)],
)
def test_a_pod_has_ended_by_its_phase(phase: str, ended: bool) -> None:
    known = Told().pods
    known.on_watch_event(ObjectSeen(object=a_pod(phase=phase)))

    found = known.named("default", "job")
    assert found is not None
    assert found.ended is ended


def test_a_pod_without_labels_and_status_is_kept() -> None:
    known = Told().pods
    bare = a_pod()
    del bare["status"], bare["metadata"]["labels"]
    known.on_watch_event(ObjectSeen(object=bare))

    assert known.by_uid("uid-job") is not None


@pytest.mark.parametrize(
    ("allowed", "kept"),
    [
        ((), {"app", "tier", "app_kubernetes_io_name"}),
        (("^app$",), {"app"}),
        (("app",), {"app", "app_kubernetes_io_name"}),
        (("^tier$", r"^app\.kubernetes\.io/"), {"tier", "app_kubernetes_io_name"}),
        (("^nothing$",), set()),
    ],
)
def test_labels_are_kept_whose_keys_a_pattern_is_found_in(
    allowed: tuple[str, ...], kept: set[str]
) -> None:
    """As dcgm-exporter's allow-list: anywhere in the key, and all without one."""
    labels = {"app": "x", "tier": "y", "app.kubernetes.io/name": "z"}

    assert {name for name, _ in chosen_labels(labels, patterns(*allowed))} == kept


def test_of_two_keys_with_one_name_the_first_in_the_alphabet_is_kept() -> None:
    """In whatever order the server has them; a key that is not asked for takes no part."""
    labels = {"a/b": "slash", "a.b": "dot", "a_b": "plain", "a-b": "dash"}

    assert chosen_labels(labels, ALL) == (("a_b", "dash"),)
    assert chosen_labels(dict(reversed(labels.items())), ALL) == (("a_b", "dash"),)
    assert chosen_labels(labels, patterns("[/_]")) == (("a_b", "slash"),)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("app", "app"),
        ("app.kubernetes.io/name", "app_kubernetes_io_name"),
        ("3d-render", "_3d_render"),
        ('a"}\\\nb', "a____b"),
        ("größe", "gr__e"),
        ("٣", "_"),
        ("a\udcff", "a_"),
    ],
)
def test_label_names_are_ones_that_prometheus_allows(key: str, name: str) -> None:
    assert label_name(key) == name
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)


def test_no_pod_can_set_a_label_of_prometheus_own() -> None:
    assert chosen_labels({"--name--": "x", "__name__": "y", "": "z"}, ALL) == ()


def test_values_are_kept_as_they_are() -> None:
    """Escaping is the renderer's."""
    assert chosen_labels({"a": 'x"\\\n'}, ALL) == (("a", 'x"\\\n'),)


def test_a_missing_right_is_named_once_with_the_manifest_that_gives_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        told.pods.on_watch_event(WatchLost(error=Forbidden("watch pods: forbidden")))

    assert whys(caplog, "watch lost") == [
        "the agent may not read pods: apply deploy/pods, or switch off what asks for them:"
        " pod-uid-label, pod-labels, virtual-gpus"
    ]
    assert told.up() == 0


def test_what_is_known_outlives_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    caplog.set_level(logging.WARNING)
    told.pods.on_watch_event(ObjectSeen(object=a_pod()))
    told.pods.on_watch_event(WatchLost(error=Unreachable("connection refused")))
    during = told.pods.named("default", "job"), told.up()
    told.pods.on_watch_event(WatchConnected())

    assert during[0] is not None
    assert (during[1], told.up()) == (0, 1)
    assert whys(caplog, "watch lost") == ["connection refused"]


def followed(api: Api, node: str) -> KnownPods:
    """What a watch of the node's pods starts with."""
    known = Told().pods

    def tell(news: WatchEvent) -> None:
        known.on_watch_event(news)
        if isinstance(news, CacheSynced):
            informer.close()

    informer = Informer(api, PODS, tell, fields={FIELD: node})
    informer.run()
    return known


def test_pods_of_other_nodes_are_not_followed() -> None:
    api = FakeApi()
    for node in ("node-a", "node-b"):
        api.server.create(PODS, a_pod(node, node), namespace="default")
    known = followed(api, "node-a")

    assert known.named("default", "node-a") is not None
    assert known.named("default", "node-b") is None


@pytest.mark.cluster
def test_the_opt_in_role_is_enough_for_it_on_a_real_api_server(any_plane: Plane) -> None:
    """With the token that is mounted into the agent's pod; other nodes' pods are left out."""
    from tests.cluster.agents import Site
    from tools.access.files import parts_of, text

    plane = any_plane
    site = Site.create(plane)
    plane.kubectl("apply", "-f", "-", stdin=text(parts_of(site.namespace)["pods"]))
    ours, other = plane.make_node(), plane.make_node()
    pods = {node: plane.bound_pod(site.namespace, names.AGENT, node) for node in (ours, other)}
    token = plane.token(site.namespace, names.AGENT, pod=pods[ours])

    with contextlib.closing(client(names.AGENT, plane.kubeconfig(token=token))) as api:
        known = followed(api, ours)

    meta = pods[ours]["metadata"]
    found = known.named(site.namespace, meta["name"])
    assert found is not None
    assert found.uid == meta["uid"]
    assert known.named(site.namespace, pods[other]["metadata"]["name"]) is None
