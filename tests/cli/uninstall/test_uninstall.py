# SPDX-License-Identifier: Apache-2.0
"""``gpuscape uninstall``: what goes, what stays, and when it refuses to begin."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api import keys, mig_status_annotation, names
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from cli.uninstall import uninstall_command
from fleet import node_patches, slot_lease
from fleet.mig_node import node_of
from fleet.rollback_record import RollbackRecord
from kube import lease as leases
from kube.api import CONFIG_MAPS, DAEMON_SETS, LEASES, NODE_FEATURES, NODES, PODS
from kube.api_errors import Conflict, Forbidden, Invalid
from tests.cli.conftest import Run
from tests.fakes.api import Call, FakeApi

LONG_AGO = datetime(2026, 11, 20, 8, tzinfo=UTC)
GUARDS = dict.fromkeys(names.SCALE_DOWN_GUARDS)
THEIRS = dict.fromkeys(
    (
        "kubernetes.io/hostname",
        "nvidia.com/device-plugin.config",
        "nvidia.com/gpu-driver-upgrade-state",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.workload.config",
        "nvidia.com/mig.config",
        "nvidia.com/mig.config.state",
        "xgpuscape.io/gpu.health",
    ),
    "theirs",
)
"""Labels that look like ours, and belong to the operator or to others."""
POD = "0b1f3a52-6d0e-4a39-9df1-5b0a3f0f2c77"
"""A UID, as a pod's agent holds its Lease by."""
TAINT = {"key": keys.MIG_LAYOUT_PENDING, "effect": "NoSchedule"}


class Cluster(FakeApi):
    """A cluster that gpuscape ran in; writes of others are by clients of the same server."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def by(self, manager: str) -> FakeApi:
        return FakeApi(server=self.server, manager=manager)

    def with_node(self, name: str) -> None:
        """With labels of NFD and of an agent, and an agent's Lease."""
        self.by("kubelet").create(NODES, {"metadata": {"name": name, "labels": {"pool": "a"}}})
        wrote = {
            "labels": {keys.GPU_PRODUCT: "NVIDIA-A100", keys.NVLINK_CLASS: "switch"},
            "annotations": {keys.TOPOLOGY: "{}"},
        }
        self.by(names.AGENT).patch(NODES, name, {"metadata": wrote})
        lease = leases.lease_object(
            names.agent_lease(name), holder="pod", duration_seconds=180, wall_time=LONG_AGO
        )
        self.by(names.AGENT).create(LEASES, lease, namespace=names.NAMESPACE)

    def holds(self, name: str, *, parked: bool = False) -> None:
        """The coordinator has begun a change there, with record, cordon and guards."""
        coordinator = self.by(names.COORDINATOR)
        node = node_of(coordinator.get(NODES, name), ())
        record = RollbackRecord(
            v=2,
            node=name,
            uid=node.uid,
            request="0" * 16,
            cordon=True,
            guards=GUARDS,
            cordoned_at=1,
        )
        number = slot_lease.PARKING if parked else 0
        lease = slot_lease.new_lease(number, record, LONG_AGO)
        coordinator.create(LEASES, lease, namespace=names.NAMESPACE)
        coordinator.patch(NODES, name, node_patches.cordon_patch(node, record))

    def meta(self, name: str) -> dict[str, Any]:
        return dict(self.server.get(NODES, name)["metadata"])

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.meta(name).get("labels") or {})

    def notes(self, name: str) -> dict[str, str]:
        return dict(self.meta(name).get("annotations") or {})

    def leases(self) -> set[str]:
        return {it["metadata"]["name"] for it in self.server.objects(LEASES, lambda _: True)}

    def is_cordoned(self, name: str) -> bool:
        return bool((self.server.get(NODES, name).get("spec") or {}).get("unschedulable"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two nodes, whose programs are gone."""
    made = Cluster(manager="gpuscape-uninstall")
    made.server.add_namespace(names.NAMESPACE)
    made.with_node("a")
    made.with_node("b")
    monkeypatch.setattr(uninstall_command, "kubeconfig_client", lambda *_: made)
    return made


def done(run: Run, *arguments: str, code: int = 0) -> str:
    result = run("uninstall", *arguments)
    assert result.exit_code == code, result.output
    return result.output


def stays(run: Run, node: str) -> dict[str, str]:
    """What stays of a Node, and why."""
    found = json.loads(done(run, "--dry-run", "-o", "json"))["nodes"]
    kept: list[dict[str, str]] = next((it["stays"] for it in found if it["node"] == node), [])
    return {each["what"]: each["why"] for each in kept}


def test_what_the_agents_wrote_goes_and_all_else_stays(cluster: Cluster, run: Run) -> None:
    text = done(run, "--yes")
    assert cluster.labels("a") == cluster.labels("b") == {"pool": "a"}
    assert cluster.notes("a") == {}
    assert cluster.leases() == set()
    assert "Removed: 6 keys of 2 Nodes, 2 objects." in text


def test_every_label_that_an_agent_may_write_goes_and_none_that_looks_like_it(
    cluster: Cluster, run: Run
) -> None:
    ours = [
        key.name.replace("<profile>", "1g.5gb.me").replace("<model>", "NVIDIA-A100-SXM4-40GB")
        for key in keys.LABELS
    ]
    cluster.by("gpu-operator").patch(NODES, "a", {"metadata": {"labels": THEIRS}})
    wrote = {"metadata": {"labels": dict.fromkeys(ours, "1")}}
    cluster.by(names.AGENT).patch(NODES, "a", wrote)
    done(run, "--yes")
    assert cluster.labels("a") == {"pool": "a", **THEIRS}


def test_keys_of_before_the_first_release_go_and_unknown_ones_stay(
    cluster: Cluster, run: Run
) -> None:
    """The coordinator of such a version is gone, and no program removes its permit any more."""
    former = {"gpuscape.io/mig-grant": "{}", "gpuscape.io/mig-undo": "{}"}
    unknown = {"gpuscape.io/mig-someday": "{}"}
    wrote = {"metadata": {"annotations": former | unknown}}
    cluster.by(names.COORDINATOR).patch(NODES, "a", wrote)
    slot = {
        "metadata": {"name": "mig-slot-0", "annotations": {"gpuscape.io/mig-undo": "{}"}},
        "spec": {"holderIdentity": ""},
    }
    cluster.by(names.COORDINATOR).create(LEASES, slot, namespace=names.NAMESPACE)
    assert stays(run, "a").keys() == unknown.keys()
    done(run, "--yes")
    assert cluster.notes("a") == unknown
    assert cluster.leases() == set()


def test_a_second_run_finds_nothing(cluster: Cluster, run: Run) -> None:
    done(run, "--yes")
    cluster.calls.clear()
    assert "Nothing to remove." in done(run, "--yes")
    assert cluster.writes() == []


def test_a_dry_run_asks_the_server_and_writes_nothing(cluster: Cluster, run: Run) -> None:
    before = cluster.meta("a")
    assert "would take all 4 writes" in done(run, "--dry-run")
    assert cluster.meta("a") == before
    assert cluster.writes() == []
    tried = [call.verb for call in cluster.calls if call.dry_run]
    assert sorted(tried) == ["delete", "delete", "patch", "patch"]


def test_a_label_that_another_program_wrote_stays(cluster: Cluster, run: Run) -> None:
    patch = {"metadata": {"labels": {keys.GPU_PRODUCT: "NVIDIA-A100-80GB"}}}
    cluster.by("gpu-feature-discovery").patch(NODES, "a", patch)
    assert stays(run, "a") == {keys.GPU_PRODUCT: "gpu-feature-discovery wrote it"}
    done(run, "--yes")
    assert cluster.labels("a") == {"pool": "a", keys.GPU_PRODUCT: "NVIDIA-A100-80GB"}


def test_labels_by_rules_go_where_an_agent_alone_wrote_them(cluster: Cluster, run: Run) -> None:
    """Whatever the rules are by now: by who wrote them."""
    wrote = dict.fromkeys(("example.com/gpu-type", "example.com/both", "example.com/nfd"), "a100")
    cluster.by(names.AGENT).patch(NODES, "a", {"metadata": {"labels": wrote}})
    cluster.by("kubectl").patch(NODES, "a", {"metadata": {"labels": {"example.com/team": "a100"}}})
    body = {"metadata": {"labels": {"example.com/both": "a100"}}}
    cluster.server.apply(NODES, "a", body, manager="somebody")
    owned = {names.FEATURE_LABELS: "example.com/nfd"}
    cluster.by("nfd-master").patch(NODES, "a", {"metadata": {"annotations": owned}})
    assert stays(run, "a") == {"example.com/both": "somebody wrote it too"}
    done(run, "--yes")
    assert cluster.labels("a") == {
        "pool": "a",
        **dict.fromkeys(("example.com/both", "example.com/nfd", "example.com/team"), "a100"),
    }


def test_a_label_of_nfd_goes_by_its_node_feature(cluster: Cluster, run: Run) -> None:
    feature = {"metadata": {"name": names.node_feature("a")}, "spec": {"labels": {}}}
    cluster.by(names.AGENT).create(NODE_FEATURES, feature, namespace=names.NAMESPACE)
    foreign = {"metadata": {"name": names.node_feature("b")}, "spec": {"labels": {}}}
    cluster.by("gpu-feature-discovery").create(NODE_FEATURES, foreign, namespace=names.NAMESPACE)
    owned = {names.FEATURE_LABELS: keys.GPU_PRODUCT}
    cluster.by("nfd-master").patch(NODES, "a", {"metadata": {"annotations": owned}})
    assert "nfd-master owns it" in stays(run, "a")[keys.GPU_PRODUCT]
    done(run, "--yes")
    left = [it["metadata"]["name"] for it in cluster.server.objects(NODE_FEATURES, lambda _: True)]
    assert left == [names.node_feature("b")]
    assert keys.GPU_PRODUCT in cluster.labels("a")


def test_what_an_admin_wrote_stays_unless_he_asks(cluster: Cluster, run: Run) -> None:
    wrote = {
        "annotations": {keys.MIG_LAYOUT: "all-balanced", keys.KEEP_CORDONED: ""},
        "labels": {keys.MIG_CONFIG: "all-balanced"},
    }
    cluster.by("kubectl").patch(NODES, "a", {"metadata": wrote})
    assert stays(run, "a").keys() == {keys.MIG_LAYOUT, keys.KEEP_CORDONED, keys.MIG_CONFIG}
    done(run, "--yes")
    assert cluster.notes("a") == wrote["annotations"]
    done(run, "--yes", "--admin-keys")
    assert cluster.notes("a") == {}
    assert cluster.labels("a") == {"pool": "a", keys.MIG_CONFIG: "all-balanced"}


def test_the_startup_taint_is_left_to_the_admin_by_name(cluster: Cluster, run: Run) -> None:
    cluster.by("kubelet").patch(NODES, "b", {"spec": {"taints": [TAINT]}})
    why = stays(run, "b")[f"taint {keys.MIG_LAYOUT_PENDING}"]
    assert f"kubectl taint node b {keys.MIG_LAYOUT_PENDING}-" in why


@pytest.mark.parametrize("has_permit", [True, False])
@pytest.mark.parametrize("has_record", [True, False])
def test_a_change_that_was_left_open_is_undone(
    cluster: Cluster, run: Run, has_record: bool, has_permit: bool
) -> None:
    cluster.holds("a")
    if not has_permit:
        called_off = {"metadata": {"annotations": {keys.MIG_PERMIT: None}}}
        cluster.by("kubectl").patch(NODES, "a", called_off)
    if not has_record:
        slot = cluster.server.get(LEASES, slot_lease.slot_name(0), names.NAMESPACE)
        cluster.server.delete(LEASES, slot["metadata"]["name"], names.NAMESPACE)
    assert cluster.is_cordoned("a")
    done(run, "--yes")
    assert not cluster.is_cordoned("a")
    lost = () if has_record or has_permit else names.SCALE_DOWN_GUARDS  # whose they are is unknown
    assert cluster.notes("a").keys() == {*lost}
    assert cluster.leases() == set()


def test_a_foreign_cordon_stays(cluster: Cluster, run: Run) -> None:
    cluster.by("kubectl").patch(NODES, "b", {"spec": {"unschedulable": True}})
    done(run, "--yes")
    assert cluster.is_cordoned("b")


def test_a_node_whose_layout_could_not_be_restored_stays_cordoned(
    cluster: Cluster, run: Run
) -> None:
    cluster.holds("a", parked=True)
    status = mig_status_annotation.encode(MigStatusAnnotation(v=2, phase=MigPhase.STUCK))
    notes = {"metadata": {"annotations": {keys.MIG_STATUS: status}}}
    cluster.by(names.AGENT).patch(NODES, "a", notes)
    assert "mend the GPUs first" in stays(run, "a")["cordon"]
    done(run, "--yes")
    assert cluster.is_cordoned("a")
    assert cluster.notes("a") == {}


@pytest.mark.parametrize("kind", [DAEMON_SETS, PODS])
def test_it_refuses_while_a_program_runs(
    cluster: Cluster, run: Run, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uninstall_command, "_PATIENCE_SECONDS", 0.0)
    meta = {"name": "gpuscape-agent", "labels": {"app.kubernetes.io/name": "gpuscape"}}
    cluster.by("helm").create(kind, {"metadata": meta}, namespace=names.NAMESPACE)
    text = done(run, "--yes", code=5)
    assert "would write again: remove it first (helm uninstall gpuscape -n gpuscape" in text
    assert f"{kind.kind} gpuscape-agent" in text
    assert cluster.writes() == []


@pytest.mark.parametrize("holder", ["process-7dd1a9a2-4d3d-4d6f-8a3f-2b1f1a6f0f11", "somebody"])
def test_it_refuses_while_an_agent_outside_of_pods_renews_its_lease(
    cluster: Cluster, run: Run, holder: str
) -> None:
    name = names.agent_lease("b")
    hold(cluster, "b", holder)
    assert f"the agent of Lease {name}, renewed" in done(run, "--yes", code=5)
    released = {"spec": {"holderIdentity": ""}}
    cluster.by(names.AGENT).patch(LEASES, name, released, namespace=names.NAMESPACE)
    done(run, "--yes")


@pytest.mark.parametrize(("duration", "code"), [(100, 0), (600, 5)])
def test_an_agent_may_run_for_as_long_as_its_lease_says(
    cluster: Cluster, run: Run, duration: int, code: int
) -> None:
    hold(cluster, "b", "somebody", ago=300, duration=duration)
    done(run, "--yes", code=code)


def test_a_lease_that_nobody_has_renewed_keeps_nobody(cluster: Cluster, run: Run) -> None:
    spec = {"holderIdentity": "somebody", "renewTime": None}
    name = names.agent_lease("b")
    cluster.by(names.AGENT).patch(LEASES, name, {"spec": spec}, namespace=names.NAMESPACE)
    done(run, "--yes")
    assert cluster.leases() == set()


def test_a_lease_of_a_pod_that_has_ended_keeps_nobody(cluster: Cluster, run: Run) -> None:
    """Its agent could not release it: the right to went together with the pod."""
    hold(cluster, "b", POD)
    done(run, "--yes")
    assert cluster.leases() == set()


def test_a_lease_of_a_pod_counts_where_pods_may_not_be_listed(cluster: Cluster, run: Run) -> None:
    hold(cluster, "b", POD)
    cluster.fail("watch", Forbidden("no right"), resource=PODS)
    assert f"the agent of Lease {names.agent_lease('b')}, renewed" in done(run, "--yes", code=5)
    assert cluster.writes() == []


def test_a_lease_of_a_pod_without_our_labels_counts_while_it_is_there(
    cluster: Cluster, run: Run
) -> None:
    made = cluster.by("somebody").create(
        PODS, {"metadata": {"name": "agent"}}, namespace=names.NAMESPACE
    )
    hold(cluster, "b", made["metadata"]["uid"])
    assert f"the agent of Lease {names.agent_lease('b')}, renewed" in done(run, "--yes", code=5)


def test_it_waits_for_pods_that_nothing_makes_again(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    meta = {"name": "gpuscape-agent-x", "labels": {"app.kubernetes.io/name": "gpuscape"}}
    cluster.by("helm").create(PODS, {"metadata": meta}, namespace=names.NAMESPACE)
    written: list[int] = []

    def end(_: float) -> None:
        written.append(len(cluster.writes()))
        cluster.server.delete(PODS, "gpuscape-agent-x", names.NAMESPACE)

    monkeypatch.setattr("time.sleep", end)
    text = done(run, "--yes")
    assert "Waiting for pods to end: Pod gpuscape-agent-x" in text
    assert written == [0]
    assert cluster.leases() == set()


def hold(cluster: Cluster, node: str, holder: str, *, ago: int = 0, duration: int = 180) -> None:
    """The node's Lease was renewed by that holder so many seconds ago."""
    renewed = datetime.now(UTC) - timedelta(seconds=ago)
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "renewTime": leases.micro_time(renewed),
    }
    cluster.by(names.AGENT).patch(
        LEASES, names.agent_lease(node), {"spec": spec}, namespace=names.NAMESPACE
    )


def test_in_the_middle_of_a_rollout_it_says_how_to_end_that_first(
    cluster: Cluster, run: Run
) -> None:
    meta = {"name": "gpuscape-agent", "labels": {"app.kubernetes.io/name": "gpuscape"}}
    cluster.by("helm").create(DAEMON_SETS, {"metadata": meta}, namespace=names.NAMESPACE)
    cluster.holds("a")
    text = done(run, "--yes", code=5)
    assert "MIG changes are not over on a: run gpuscape mig rollout pause" in text
    assert cluster.writes() == []


def test_a_node_that_changes_meanwhile_is_read_again(cluster: Cluster, run: Run) -> None:
    def change(call: Call) -> None:
        if call.name == "a":
            patch = {"metadata": {"labels": {"zone": "z"}}}
            cluster.by("cloud").patch(NODES, "a", patch)

    cluster.before("patch", change, times=1, resource=NODES)
    done(run, "--yes")
    assert cluster.labels("a") == {"pool": "a", "zone": "z"}


def test_what_cannot_be_removed_is_named_and_its_lease_kept(cluster: Cluster, run: Run) -> None:
    cluster.holds("a")
    cluster.fail("patch", Invalid("no"), times=1, resource=NODES)
    text = done(run, "--yes", code=7)
    assert "Node a: no" in text
    assert cluster.leases() == {names.agent_lease("a"), slot_lease.slot_name(0)}
    done(run, "--yes")
    assert cluster.leases() == set()
    assert not cluster.is_cordoned("a")


def test_a_node_that_changes_all_the_time_is_named(cluster: Cluster, run: Run) -> None:
    cluster.fail("patch", Conflict("changed"), times=None, resource=NODES)
    assert "Node a: it changes too often" in done(run, "--yes", code=7)


def test_a_lease_of_such_a_name_that_no_program_wrote_stays(cluster: Cluster, run: Run) -> None:
    other = cluster.by("another-program")
    for name in (names.agent_lease("x"), slot_lease.slot_name(3), names.COORDINATOR_LEASE):
        other.create(LEASES, {"metadata": {"name": name}}, namespace=names.NAMESPACE)
    before = cluster.leases() - {names.agent_lease("a"), names.agent_lease("b")}
    done(run, "--yes")
    assert cluster.leases() == before


def test_a_label_that_another_writes_in_the_last_moment_stays(cluster: Cluster, run: Run) -> None:
    def change(call: Call) -> None:
        del call
        patch = {"metadata": {"labels": {keys.GPU_PRODUCT: "theirs"}}}
        cluster.by("gpu-feature-discovery").patch(NODES, "a", patch)

    cluster.before("patch", change, times=1, resource=NODES)
    done(run, "--yes")
    assert cluster.labels("a")[keys.GPU_PRODUCT] == "theirs"


def test_a_node_that_goes_meanwhile_is_no_failure(cluster: Cluster, run: Run) -> None:
    def delete(call: Call) -> None:
        cluster.server.delete(NODES, str(call.name))

    cluster.before("patch", delete, times=1, resource=NODES)
    done(run, "--yes")
    assert cluster.leases() == set()


def test_an_object_that_is_another_by_now_is_not_deleted(cluster: Cluster, run: Run) -> None:
    name = names.agent_lease("a")

    def replace(call: Call) -> None:
        if call.name == name:
            cluster.server.delete(LEASES, name, names.NAMESPACE)
            cluster.by(names.AGENT).create(
                LEASES, {"metadata": {"name": name}}, namespace=names.NAMESPACE
            )

    cluster.before("delete", replace, times=1, resource=LEASES)
    assert f"Lease gpuscape/{name}" in done(run, "--yes", code=7)
    assert name in cluster.leases()


def test_what_stays_in_the_cluster_is_listed(cluster: Cluster, run: Run) -> None:
    policy = {"metadata": {"name": names.MIG_POLICY}}
    cluster.by("kubectl").create(CONFIG_MAPS, policy, namespace=names.NAMESPACE)
    found = json.loads(done(run, "--dry-run", "-o", "json"))
    what = {each["what"]: each["why"] for each in found["stays"]}
    assert what["ConfigMap gpuscape/gpuscape-mig-policy"] == "it is your fleet policy"
    assert "/var/lib/gpuscape" in what["files on the nodes"]


def test_what_may_not_be_listed_is_named(cluster: Cluster, run: Run) -> None:
    cluster.fail("watch", Forbidden("no right"), resource=NODE_FEATURES)
    assert "Not looked at: nodefeatures: you may not list them" in done(run, "--dry-run")


def test_without_nodes_nothing_is_done(cluster: Cluster, run: Run) -> None:
    cluster.fail("watch", Forbidden("no right"), resource=NODES)
    done(run, "--yes", code=4)
    assert cluster.writes() == []


def test_nobody_is_asked_where_nobody_is(cluster: Cluster, run: Run) -> None:
    assert "add --yes (writes: 4)" in done(run, code=2)
    assert cluster.writes() == []
