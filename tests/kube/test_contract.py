# SPDX-License-Identifier: Apache-2.0
"""What every ``Api`` keeps: the client on a real API server, and the fake that tests rely on."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from kube import lease
from kube.access_reviews import AccessRight, may, own_account
from kube.api import EVENTS, LEASES, NODES, PODS, ApiResource, Change, Object, Watch
from kube.api_errors import (
    BudgetRefused,
    Conflict,
    Expired,
    Invalid,
    NamespaceTerminating,
    NotFound,
    SeveralBudgets,
)
from tests.fakes.api import FakeApi
from tests.kube.clusters import Cluster, InMemory, Real, client

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

NOW = datetime(2026, 11, 20, 8, tzinfo=UTC)
NAMESPACE = "default"
UNKNOWN = ApiResource(group="nowhere.example", version="v1", kind="Unknown")
GONE = "11111111-0000-4000-8000-000000000000"
"""A UID that no pod has."""
ABOUT = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}


@pytest.fixture
def node() -> str:
    """A name that nobody else uses."""
    return f"node-{uuid.uuid4().hex[:10]}"


def named(name: str, **meta: Any) -> Object:
    """The least body of an object."""
    return {"metadata": {"name": name, **meta}}


def labelled(**labels: object) -> Object:
    """A patch of labels; ``_`` in a name stands for the dash."""
    return {"metadata": {"labels": {key.replace("_", "-"): text for key, text in labels.items()}}}


def first(watch: Watch, count: int) -> list[Change]:
    """The next changes of a watch, which is closed then."""
    changes = list(islice(watch, count))
    watch.close()
    return changes


def words(watch: Watch, prefix: str) -> Iterator[str]:
    """What a watch tells of objects whose names begin so."""
    for change in watch:
        name = change.object["metadata"].get("name", "")
        if name.startswith(prefix):
            yield f"{change.type} {name}"


def owners(thing: Object, label: str) -> set[tuple[str, str]]:
    """(manager, operation) of all who own a label."""
    return {
        (entry["manager"], entry["operation"])
        for entry in thing["metadata"]["managedFields"]
        if f"f:{label}" in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
    }


class Contract:
    """The promises; subclasses say of whom."""

    def test_what_is_not_there_is_not_found_by_its_name(self, cluster: Cluster, node: str) -> None:
        with pytest.raises(NotFound, match=node):
            cluster.api.get(NODES, node)
        with pytest.raises(NotFound, match=node):
            cluster.api.patch(NODES, node, labelled(a="b"))

    def test_a_created_object_has_identity_and_version(self, cluster: Cluster, node: str) -> None:
        made = cluster.api.create(NODES, named(node, labels={"a": "b"}))

        assert made["metadata"]["uid"]
        assert made["metadata"]["resourceVersion"]
        assert (made["apiVersion"], made["kind"]) == ("v1", "Node")
        assert cluster.api.get(NODES, node)["metadata"]["labels"]["a"] == "b"

    def test_what_exists_is_not_created_again(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(NODES, named(node))
        with pytest.raises(Conflict, match=node):
            cluster.api.create(NODES, named(node))

    def test_a_dry_run_answers_and_changes_nothing(self, cluster: Cluster, node: str) -> None:
        would = cluster.api.create(NODES, named(node), dry_run=True)
        assert would["metadata"]["name"] == node
        with pytest.raises(NotFound):
            cluster.api.get(NODES, node)

        made = cluster.api.create(NODES, named(node))
        would = cluster.api.patch(NODES, node, labelled(a="b"), dry_run=True)
        assert would["metadata"]["labels"]["a"] == "b"
        assert cluster.api.get(NODES, node)["metadata"] == made["metadata"]

    def test_a_dry_run_is_refused_like_the_real_one(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(NODES, named(node))
        with pytest.raises(Conflict):
            cluster.api.create(NODES, named(node), dry_run=True)
        with pytest.raises(Invalid):
            cluster.api.patch(NODES, node, labelled(a="no blanks"), dry_run=True)

    def test_a_merge_patch_sets_and_removes_its_keys_only(
        self, cluster: Cluster, node: str
    ) -> None:
        cluster.api.create(NODES, named(node, labels={"keep": "1", "set": "1", "drop": "1"}))

        cluster.api.patch(NODES, node, labelled(set="2", drop=None, never_there=None, new="1"))

        labels = cluster.api.get(NODES, node)["metadata"]["labels"]
        assert {key: labels.get(key) for key in ("keep", "set", "drop", "never-there", "new")} == {
            "keep": "1",
            "set": "2",
            "drop": None,
            "never-there": None,
            "new": "1",
        }

    def test_a_patch_that_changes_nothing_makes_no_version(
        self, cluster: Cluster, node: str
    ) -> None:
        made = cluster.api.create(NODES, named(node, labels={"a": "b"}))
        again = cluster.api.patch(NODES, node, labelled(a="b"))
        assert again["metadata"] == made["metadata"]

    def test_a_patch_with_an_old_version_conflicts(self, cluster: Cluster, node: str) -> None:
        made = cluster.api.create(NODES, named(node))
        version = {"resourceVersion": made["metadata"]["resourceVersion"]}

        cluster.api.patch(NODES, node, {"metadata": {**version, "labels": {"a": "1"}}})
        with pytest.raises(Conflict, match=node):
            cluster.api.patch(NODES, node, {"metadata": {**version, "labels": {"a": "2"}}})

        assert cluster.api.get(NODES, node)["metadata"]["labels"]["a"] == "1"

    def test_a_patch_for_another_incarnation_is_invalid(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(NODES, named(node))
        with pytest.raises(Invalid, match=r"metadata\.uid"):
            cluster.api.patch(NODES, node, {"metadata": {"uid": str(uuid.uuid4())}})

    def test_a_patch_cannot_rename(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(NODES, named(node))
        with pytest.raises(Invalid, match="does not match"):
            cluster.api.patch(NODES, node, {"metadata": {"name": f"{node}x"}})

    def test_a_node_has_its_status_elsewhere(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(NODES, named(node))
        cluster.api.patch(NODES, node, {"status": {"phase": "Terminated"}})
        assert "phase" not in cluster.api.get(NODES, node).get("status", {})

    @pytest.mark.parametrize(
        "metadata",
        [
            {"labels": {"a": "no blanks"}},
            {"labels": {"a": 1}},
            {"labels": {"a": "x" * 64}},
            {"labels": {"no blanks": "a"}},
            {"labels": {"/a": "b"}},
            {"labels": {"UPPER.example/a": "b"}},
            {"annotations": {"a": {"not": "text"}}},
            {"annotations": {"a": "x" * (256 * 1024)}},
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}]},
        ],
    )
    def test_metadata_that_is_not_legal_is_invalid(
        self, cluster: Cluster, node: str, metadata: Object
    ) -> None:
        cluster.api.create(NODES, named(node))
        with pytest.raises(Invalid):
            cluster.api.patch(NODES, node, {"metadata": metadata})

    def test_a_name_may_be_left_to_the_server(self, cluster: Cluster) -> None:
        made = cluster.api.create(
            LEASES, {"metadata": {"generateName": "some-"}}, namespace=NAMESPACE
        )
        name = made["metadata"]["name"]
        assert name.startswith("some-")
        assert len(name) > len("some-")
        cluster.delete(LEASES, name, NAMESPACE)

    def test_a_namespace_has_to_be_there(self, cluster: Cluster, node: str) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            cluster.api.create(LEASES, named(node), namespace="nowhere")

    def test_a_kind_that_is_not_served_is_not_found(self, cluster: Cluster, node: str) -> None:
        with pytest.raises(NotFound):
            cluster.api.create(UNKNOWN, named(node), namespace=NAMESPACE)
        with pytest.raises(NotFound):
            list(cluster.api.watch(UNKNOWN, namespace=NAMESPACE))

    # who owns a field

    def test_whoever_changes_a_value_owns_it(self, cluster: Cluster, node: str) -> None:
        cluster.other.create(NODES, named(node, labels={"same": "1", "new": "1"}))

        after = cluster.api.patch(NODES, node, labelled(same="1", new="2", own="3"))

        assert owners(after, "same") == {("kubectl", "Update")}
        assert owners(after, "new") == {("gpuscape-agent", "Update")}
        assert owners(after, "own") == {("gpuscape-agent", "Update")}

    def test_a_write_may_name_another_manager(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(NODES, named(node, labels={"a": "1"}), manager="first")
        after = cluster.api.patch(NODES, node, labelled(b="1"), manager="second")

        assert owners(after, "a") == {("first", "Update")}
        assert owners(after, "b") == {("second", "Update")}

    def test_an_applier_owns_until_somebody_changes_the_value(
        self, cluster: Cluster, node: str
    ) -> None:
        cluster.api.create(NODES, named(node))
        cluster.apply(node, named(node, labels={"a": "1", "b": "1"}), "gitops")

        assert owners(cluster.api.get(NODES, node), "a") == {("gitops", "Apply")}
        after = cluster.api.patch(NODES, node, labelled(a="2"))

        assert owners(after, "a") == {("gpuscape-agent", "Update")}
        assert owners(after, "b") == {("gitops", "Apply")}

    # watches

    def test_a_watch_tells_what_is_there_then_a_bookmark_then_what_happens(
        self, cluster: Cluster, node: str
    ) -> None:
        made = cluster.api.create(NODES, named(node))
        cluster.api.create(NODES, named(f"{node}-other"))
        watch = cluster.api.watch(NODES, name=node)

        there = list(islice(watch_iterator := iter(watch), 2))
        cluster.api.patch(NODES, node, labelled(a="b"))
        cluster.delete(NODES, node)
        # the server sends a bookmark once a minute, whatever happens
        then = list(islice((it for it in watch_iterator if it.type != "BOOKMARK"), 2))
        watch.close()

        assert [change.type for change in there] == ["ADDED", "BOOKMARK"]
        assert there[0].object["metadata"]["uid"] == made["metadata"]["uid"]
        assert [change.type for change in then] == ["MODIFIED", "DELETED"]
        assert then[0].object["metadata"]["labels"]["a"] == "b"

    def test_a_watch_of_nothing_starts_with_the_bookmark(self, cluster: Cluster, node: str) -> None:
        watch = cluster.api.watch(NODES, name=node)
        changes = iter(watch)
        start = next(changes)
        cluster.api.create(NODES, named(node))
        then = next(changes)
        watch.close()

        assert (start.type, then.type) == ("BOOKMARK", "ADDED")

    def test_a_watch_from_a_version_tells_only_what_came_later(
        self, cluster: Cluster, node: str
    ) -> None:
        made = cluster.api.create(NODES, named(node))
        cluster.api.patch(NODES, node, labelled(a="1"))

        version = made["metadata"]["resourceVersion"]
        changes = first(cluster.api.watch(NODES, name=node, resource_version=version), 1)

        assert [change.type for change in changes] == ["MODIFIED"]
        assert changes[0].object["metadata"]["labels"]["a"] == "1"

    def test_a_watch_can_go_on_from_a_bookmark(self, cluster: Cluster, node: str) -> None:
        (bookmark,) = first(cluster.api.watch(NODES, name=node), 1)
        cluster.api.create(NODES, named(node))

        version = bookmark.object["metadata"]["resourceVersion"]
        changes = first(cluster.api.watch(NODES, name=node, resource_version=version), 1)

        assert [change.type for change in changes] == ["ADDED"]

    def test_a_watch_of_a_namespace_sees_that_one_only(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(LEASES, named(node), namespace="kube-system")
        cluster.api.create(LEASES, named(node), namespace=NAMESPACE)

        there = first(cluster.api.watch(LEASES, namespace=NAMESPACE, name=node), 2)

        assert [change.type for change in there] == ["ADDED", "BOOKMARK"]
        assert there[0].object["metadata"]["namespace"] == NAMESPACE

    def test_a_watch_may_be_of_all_namespaces(self, cluster: Cluster, node: str) -> None:
        for namespace in ("kube-system", NAMESPACE):
            cluster.api.create(LEASES, named(node), namespace=namespace)

        there = first(cluster.api.watch(LEASES, name=node), 3)

        assert {change.object["metadata"].get("namespace") for change in there[:2]} == {
            "kube-system",
            NAMESPACE,
        }
        assert there[2].type == "BOOKMARK"

    def test_a_watch_of_metadata_tells_nothing_else(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(
            NODES, {**named(node, labels={"a": "1"}), "spec": {"podCIDR": "10.0.0.0/24"}}
        )

        watch = cluster.api.watch(NODES, name=node, metadata_only=True)
        changes = iter(watch)
        there = list(islice(changes, 2))
        cluster.api.patch(NODES, node, labelled(a="2"))
        then = next(changes)
        watch.close()

        assert [change.type for change in (*there, then)] == ["ADDED", "BOOKMARK", "MODIFIED"]
        assert there[1].object["metadata"]["resourceVersion"]
        for change, a in ((there[0], "1"), (then, "2")):
            assert set(change.object) == {"apiVersion", "kind", "metadata"}
            assert change.object["kind"] == "PartialObjectMetadata"
            assert change.object["metadata"]["labels"]["a"] == a

    def test_a_watch_by_fields_tells_what_comes_to_have_them(
        self, cluster: Cluster, node: str
    ) -> None:
        cluster.api.create(NODES, named(node))
        for at in (0, 1):
            cluster.make_pod(f"{node}-{at}", NAMESPACE)
        cluster.bind(f"{node}-0", NAMESPACE, node)
        with_node = cluster.api.watch(PODS, namespace=NAMESPACE, fields={"spec.nodeName!": ""})
        without = cluster.api.watch(PODS, namespace=NAMESPACE, fields={"spec.nodeName": ""})
        bound, waiting = words(with_node, node), words(without, node)

        at_first = next(bound), next(waiting)
        cluster.bind(f"{node}-1", NAMESPACE, node)
        then = next(bound), next(waiting)
        with_node.close()
        without.close()
        for at in (0, 1):
            cluster.delete(PODS, f"{node}-{at}", NAMESPACE)

        assert at_first == (f"ADDED {node}-0", f"ADDED {node}-1")
        assert then == (f"ADDED {node}-1", f"DELETED {node}-1")

    def test_a_watch_is_closed_from_another_thread(self, cluster: Cluster, node: str) -> None:
        watch = cluster.api.watch(NODES, name=node)
        waiting = threading.Event()
        ended = threading.Event()

        def read() -> None:
            for _ in watch:
                waiting.set()
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        assert waiting.wait(10)
        watch.close()

        assert ended.wait(1)

    def test_a_closed_watch_tells_nothing(self, cluster: Cluster, node: str) -> None:
        watch = cluster.api.watch(NODES, name=node)
        watch.close()
        assert list(watch) == []

    # Leases and Events

    def test_a_lease_is_made_renewed_taken_over_and_released(
        self, cluster: Cluster, node: str
    ) -> None:
        owner = cluster.api.create(NODES, named(node))
        body = lease.lease_object(node, holder="a", duration_seconds=180, wall_time=NOW, node=owner)

        made = cluster.api.create(LEASES, body, namespace=NAMESPACE)
        renewed = cluster.api.patch(
            LEASES, node, lease.renewal(made, wall_time=NOW), namespace=NAMESPACE
        )
        taken = cluster.api.patch(
            LEASES,
            node,
            lease.takeover(renewed, holder="b", duration_seconds=60, wall_time=NOW),
            namespace=NAMESPACE,
        )
        with pytest.raises(Conflict):
            cluster.api.patch(
                LEASES,
                node,
                lease.renewal(made, wall_time=NOW.replace(hour=9)),
                namespace=NAMESPACE,
            )
        left = cluster.api.patch(
            LEASES, node, lease.release_patch(taken, wall_time=NOW), namespace=NAMESPACE
        )

        assert taken["spec"]["holderIdentity"] == "b"
        assert taken["spec"]["leaseTransitions"] == 1
        assert left["spec"].get("holderIdentity", "") == ""
        assert left["metadata"]["ownerReferences"] == [lease.owner(owner)]

    @pytest.mark.parametrize(
        "spec", [{"renewTime": "yesterday"}, {"leaseDurationSeconds": 0}, {"renewTime": 5}]
    )
    def test_a_lease_that_makes_no_sense_is_invalid(
        self, cluster: Cluster, node: str, spec: Object
    ) -> None:
        with pytest.raises(Invalid):
            cluster.api.create(LEASES, {**named(node), "spec": spec}, namespace=NAMESPACE)

    def test_of_an_event_only_the_series_changes(self, cluster: Cluster, node: str) -> None:
        cluster.api.create(EVENTS, event(node), namespace=NAMESPACE)

        series = {"count": 2, "lastObservedTime": lease.micro_time(NOW)}
        after = cluster.api.patch(EVENTS, node, {"series": series}, namespace=NAMESPACE)
        with pytest.raises(Invalid):
            cluster.api.patch(EVENTS, node, {"note": "other"}, namespace=NAMESPACE)

        assert after["series"]["count"] == 2
        assert cluster.api.patch(EVENTS, node, {}, namespace=NAMESPACE) == after

    @pytest.mark.parametrize(
        "change",
        [
            {"eventTime": None},
            {"eventTime": "yesterday"},
            {"reportingController": ""},
            {"reportingInstance": ""},
            {"action": ""},
            {"reason": ""},
            {"type": "Sad"},
            {"note": "x" * 1025},
            {"metadata": {"name": "in-kube-system", "namespace": "kube-system"}},
        ],
        ids=lambda change: json.dumps(change)[:40],
    )
    def test_an_event_that_makes_no_sense_is_invalid(
        self, cluster: Cluster, node: str, change: Object
    ) -> None:
        with pytest.raises(Invalid):
            cluster.api.create(EVENTS, {**event(node), **change}, namespace=NAMESPACE)

    def test_an_event_about_a_node_lives_not_just_anywhere(
        self, cluster: Cluster, node: str
    ) -> None:
        with pytest.raises(Invalid):
            cluster.api.create(EVENTS, event(node), namespace="kube-public")

    def test_an_evicted_pod_leaves_with_its_own_grace(self, cluster: Cluster, node: str) -> None:
        place = cluster.namespace()
        cluster.api.create(NODES, named(node))
        slow = cluster.run("slow", place, node, {"app": "a"}, 30)
        quick = cluster.run("quick", place, node, {"app": "a"}, 0)

        cluster.api.evict("slow", namespace=place, uid=slow)
        cluster.api.evict("quick", namespace=place, uid=quick)

        leaving = cluster.api.get(PODS, "slow", namespace=place)
        assert leaving["metadata"]["deletionTimestamp"]
        assert leaving["spec"]["terminationGracePeriodSeconds"] == 30
        with pytest.raises(NotFound):
            cluster.api.get(PODS, "quick", namespace=place)
        cluster.api.evict("slow", namespace=place, uid=slow)

    def test_a_dry_run_of_an_eviction_leaves_the_pod_and_its_budget(
        self, cluster: Cluster, node: str
    ) -> None:
        place, labels = cluster.namespace(), {"app": "a"}
        cluster.api.create(NODES, named(node))
        uids = {name: cluster.run(name, place, node, labels, 30) for name in ("a", "b")}
        cluster.budget("one-stays", place, labels, 1)

        for name, uid in uids.items():
            cluster.api.evict(name, namespace=place, uid=uid, dry_run=True)

        assert "deletionTimestamp" not in cluster.api.get(PODS, "a", namespace=place)["metadata"]
        cluster.api.evict("a", namespace=place, uid=uids["a"])
        with pytest.raises(BudgetRefused, match="disruption budget"):
            cluster.api.evict("b", namespace=place, uid=uids["b"])
        with pytest.raises(BudgetRefused):
            cluster.api.evict("b", namespace=place, uid=uids["b"], dry_run=True)

    def test_a_pod_that_another_has_replaced_is_not_evicted(
        self, cluster: Cluster, node: str
    ) -> None:
        place = cluster.namespace()
        cluster.api.create(NODES, named(node))
        cluster.run("a", place, node, {"app": "a"}, 30)

        for dry_run in (True, False):
            with pytest.raises(Conflict, match="precondition"):
                cluster.api.evict("a", namespace=place, uid=GONE, dry_run=dry_run)

        assert "deletionTimestamp" not in cluster.api.get(PODS, "a", namespace=place)["metadata"]
        with pytest.raises(NotFound):
            cluster.api.evict("b", namespace=place, uid=GONE)

    def test_a_pod_of_two_budgets_is_never_evicted(self, cluster: Cluster, node: str) -> None:
        place, labels = cluster.namespace(), {"app": "a"}
        cluster.api.create(NODES, named(node))
        uid = cluster.run("a", place, node, labels, 30)
        cluster.run("b", place, node, labels, 30)
        cluster.budget("one", place, labels, 1)
        cluster.budget("two", place, labels, 1)

        for dry_run in (True, False):
            with pytest.raises(SeveralBudgets):
                cluster.api.evict("a", namespace=place, uid=uid, dry_run=dry_run)

    def test_a_budget_does_not_hold_what_has_not_started(self, cluster: Cluster) -> None:
        place = cluster.namespace()
        cluster.make_pod("a", place)
        cluster.budget("none", place, {}, 0)
        uid = cluster.api.get(PODS, "a", namespace=place)["metadata"]["uid"]

        cluster.api.evict("a", namespace=place, uid=uid)

        with pytest.raises(NotFound):
            cluster.api.get(PODS, "a", namespace=place)

    def test_only_the_object_with_the_uid_is_deleted(self, cluster: Cluster, node: str) -> None:
        there = cluster.api.create(NODES, named(node))["metadata"]
        with pytest.raises(Conflict):
            cluster.api.delete(NODES, node, uid="another")
        cluster.api.delete(NODES, node, uid=there["uid"], dry_run=True)
        assert cluster.api.get(NODES, node)["metadata"] == there

        cluster.api.delete(NODES, node, uid=there["uid"])

        with pytest.raises(NotFound):
            cluster.api.get(NODES, node)
        with pytest.raises(NotFound):
            cluster.api.delete(NODES, node, uid=there["uid"])

    def test_in_a_namespace_that_is_deleted_nothing_is_made_or_evicted(
        self, cluster: Cluster, node: str
    ) -> None:
        place = cluster.namespace()
        cluster.api.create(NODES, named(node))
        uid = cluster.run("a", place, node, {"app": "a"}, 30)

        cluster.terminate(place)

        with pytest.raises(NamespaceTerminating):
            cluster.api.create(LEASES, named("a"), namespace=place)
        with pytest.raises(NamespaceTerminating):
            cluster.api.evict("a", namespace=place, uid=uid)

    def test_the_server_says_its_version_and_time(self, cluster: Cluster) -> None:
        info = cluster.api.server_info()

        assert info.version.startswith("v1.")
        assert info.unix_seconds is not None
        assert abs(info.unix_seconds - time.time()) < 60

    def test_the_server_says_who_asks_and_what_that_account_may(self, cluster: Cluster) -> None:
        right = AccessRight(verb="patch", resource=NODES)
        nobody = "system:serviceaccount:default:no-such-account"
        cluster.deny(nobody, right)

        assert own_account(cluster.api) == cluster.account
        assert may(cluster.api, right)
        assert not may(cluster.api, right, account=nobody)


def event(name: str) -> Object:
    """A plain Event about a Node."""
    return {
        **named(name),
        "eventTime": lease.micro_time(NOW),
        "reportingController": "gpuscape-agent",
        "reportingInstance": "pod-a",
        "regarding": ABOUT,
        "reason": "Tried",
        "action": "Trying",
        "note": "It was tried.",
        "type": "Normal",
    }


class TestFake(Contract):
    """The one in memory."""

    @pytest.fixture
    def cluster(self) -> InMemory:
        """A server of its own for each test."""
        api = FakeApi()
        return InMemory(api=api, other=FakeApi(server=api.server, manager="kubectl"))

    def test_a_watch_from_too_long_ago_has_expired(self, cluster: InMemory, node: str) -> None:
        """Here alone: a young server still has all its history."""
        made = cluster.api.create(NODES, named(node))
        cluster.api.patch(NODES, node, labelled(a="b"))
        cluster.api.server.forget_history()

        version = made["metadata"]["resourceVersion"]
        with pytest.raises(Expired, match="too old resource version"):
            list(cluster.api.watch(NODES, name=node, resource_version=version))


@pytest.mark.cluster
class TestRealServer(Contract):
    """The real one, old and new."""

    @pytest.fixture
    def cluster(self, any_plane: Plane) -> Iterator[Real]:
        """The shared server; the test's nodes have names of their own."""
        kubeconfig = any_plane.kubeconfig()
        ours, theirs = client("gpuscape-agent", kubeconfig), client("kubectl", kubeconfig)
        yield Real(plane=any_plane, api=ours, other=theirs)
        ours.close()
        theirs.close()
