# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout plan``: what it reads, asks in dry runs, and prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, pod_key
from cli.mig.rollout import rollout_plan
from forecast.cluster_picture import (
    CLUSTER_QUEUES,
    CRON_JOBS,
    RESOURCE_QUOTAS,
    WORKLOADS,
)
from kube.api import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, LEASES, NODES, PODS
from kube.api_errors import AdmissionRefused, Forbidden
from tests.cli.conftest import Run
from tests.fakes.api import FakeApi
from tests.fleet.drain.drain_objects import owned_by
from tests.forecast.preview_objects import GPU, gpu_spec, node
from tests.forecast.test_agent_terms import MOUNT, VOLUME, coordinator, with_setting

TEAM = "team"


class Cluster(FakeApi):
    """A cluster with Kueue's newest version, and without Karpenter and JobSet."""

    def close(self) -> None:
        """As the real client's."""
        self.end_watches()

    def with_node(self, name: str, **more: Any) -> None:
        made = node(name, **more)
        made["metadata"] = {key: made["metadata"][key] for key in ("name", "labels", "annotations")}
        self.server.create(NODES, made)

    def with_pod(self, name: str, on: str) -> None:
        body = {
            "metadata": {
                "name": name,
                "ownerReferences": owned_by("ReplicaSet", "r", group="apps/v1"),
            },
            "spec": gpu_spec({GPU: 1}) | {"nodeName": on},
            "status": {"phase": "Running"},
        }
        self.server.create(PODS, body, TEAM)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Two nodes of 8 GPUs and one without MIG; a pod on one; agents that enforce."""
    made = Cluster(manager="gpuscape-mig-rollout")
    made.server.add_namespace(TEAM)
    for kind in (DEPLOYMENTS, CRON_JOBS, RESOURCE_QUOTAS, CLUSTER_QUEUES, WORKLOADS):
        made.server.serve(kind)
    made.with_node("a", labels={"pool": "x"})
    made.with_node("b", labels={"pool": "x"})
    made.with_node("t4", machine="t4", labels={"pool": "x"}, offers={GPU: 4})
    made.with_pod("job", on="a")
    agents = with_setting("--mig-mode", "enforce")
    made.server.create(DAEMON_SETS, agents, "gpuscape")
    lease = {"metadata": {"name": names.COORDINATOR_LEASE}, "spec": {"holderIdentity": "c"}}
    made.server.create(LEASES, lease, names.NAMESPACE)
    monkeypatch.setattr(rollout_plan, "kubeconfig_client", lambda *_: made)
    return made


def planned(run: Run, *arguments: str, code: int = 0) -> str:
    result = run("mig", "rollout", "plan", *arguments)
    assert result.exit_code == code, result.output
    return result.output


def document(run: Run, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(planned(run, *arguments, "-o", "json"))
    return found


def test_a_plan_shows_nodes_resources_and_pods_and_writes_nothing(
    cluster: Cluster, run: Run
) -> None:
    text = planned(run, "all-1g.10gb", "-l", "pool=x")
    assert "3 nodes: 2 would change, 1 left out." in text
    assert "Pods in the way: at most 1." in text
    rows = [tuple(line.split()) for line in text.splitlines()]
    assert ("nvidia.com/mig-1g.10gb", "0", "112", "+112") in rows
    assert ("nvidia.com/gpu", "20", "4", "-16") in rows
    assert "none of its GPUs has MIG" in text
    assert cluster.writes() == []
    assert cluster.evictions() == []
    tried = {(call.verb, call.name) for call in cluster.calls if call.dry_run}
    assert tried == {("patch", "a"), ("patch", "b"), ("evict", "job")}


@pytest.mark.usefixtures("cluster")
def test_a_plan_is_data_too(run: Run) -> None:
    found = document(run, "all-1g.10gb", "--node", "a")
    (one,) = found["nodes"]
    assert (one["node"], one["fate"], one["then"]) == (
        "a",
        "changes",
        {"nvidia.com/mig-1g.10gb": 56},
    )
    assert one["pods"]["in_the_way"] == ["team/job"]
    assert one["pods"]["eviction"]["evicted"] == ["team/job"]
    assert found["resources"][0] == {
        "resource": "nvidia.com/gpu",
        "now": 20,
        "then": 12,
        "change": -8,
    }
    assert "needs_a_look: false" in planned(run, "all-1g.10gb", "--node", "a", "-o", "yaml")
    assert found["writes_refused"] is None


def test_kinds_that_are_not_there_or_not_allowed_are_named(cluster: Cluster, run: Run) -> None:
    cluster.fail("watch", Forbidden("list resourcequotas: no"), resource=RESOURCE_QUOTAS)
    found = document(run, "all-1g.10gb", "--node", "a")
    missed = {it["what"]: (it["why"], it["matters"]) for it in found["not_looked_at"]}
    assert missed == {
        "resourcequotas": ("you may not list them: list resourcequotas: no", True),
        "nodepools.karpenter.sh": ("the cluster has no such kind", False),
    }
    assert found["needs_a_look"]
    text = planned(run, "all-1g.10gb", "--node", "a")
    assert "nodepools" not in text
    assert "nodepools.karpenter.sh: the cluster has no such kind" in planned(
        run, "all-1g.10gb", "--node", "a", "-o", "wide"
    )


def test_evictions_that_are_refused_keep_all_pods_of_the_node(cluster: Cluster, run: Run) -> None:
    cluster.fail("evict", AdmissionRefused("evict pods/job: never", policy="p"))
    (one,) = document(run, "all-1g.10gb", "--node", "a", "--drain", "evict")["nodes"]
    assert one["pods"]["eviction"]["evicted"] == []
    assert one["pods"]["eviction"]["blockers"][0]["text"] == "evict pods/job: never."
    cluster.fail("evict", Forbidden("evict pods/job: not you"))
    text = planned(run, "all-1g.10gb", "--node", "a")
    assert "evictions (dry run): you may not evict pods: evict pods/job: not you" in text
    calls = len(cluster.calls)
    planned(run, "all-1g.10gb", "--node", "a", "--no-evictions")
    assert not [call for call in cluster.calls[calls:] if call.verb == "evict"]


def test_a_coordinator_that_ignores_marks_of_autoscalers_is_foretold_to(
    cluster: Cluster, run: Run
) -> None:
    mark = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    cluster.server.patch(PODS, "job", mark, TEAM)
    (kept,) = document(run, "all-1g.10gb", "--node", "a", "--drain", "evict")["nodes"]
    assert [it["kind"] for it in kept["pods"]["eviction"]["blockers"]] == ["do-not-disrupt"]
    cluster.server.create(DEPLOYMENTS, coordinator("--ignore-autoscaler-marks"), "gpuscape")
    (goes,) = document(run, "all-1g.10gb", "--node", "a", "--drain", "evict")["nodes"]
    assert goes["pods"]["eviction"]["evicted"] == ["team/job"]


def test_writes_that_are_refused_are_shown_and_end_a_script(cluster: Cluster, run: Run) -> None:
    cluster.fail("patch", AdmissionRefused("patch nodes/a: no", policy="p"))
    text = planned(run, "all-1g.10gb", "-l", "pool=x", "--exit-code", code=1)
    assert "The API server refuses writes:" in text
    assert "a: patch nodes/a: no" in text


@pytest.mark.usefixtures("cluster")
def test_the_exit_code_tells_whether_something_needs_a_look(run: Run) -> None:
    planned(run, "all-1g.10gb", "--node", "a", "--exit-code")
    planned(run, "all-1g.11gb", "--node", "a", "--exit-code", code=1)
    assert "would refuse" in planned(run, "all-1g.11gb", "--node", "a")


def test_a_coordinator_that_lets_no_node_begin_is_named(cluster: Cluster, run: Run) -> None:
    assert document(run, "all-1g.10gb", "--node", "a")["coordinator"] == []
    notes = {"metadata": {"annotations": {keys.MIG_PAUSED: "true"}}}
    cluster.server.patch(LEASES, names.COORDINATOR_LEASE, notes, names.NAMESPACE)
    text = planned(run, "all-1g.10gb", "--node", "a", "--exit-code", code=1)
    assert "The coordinator:\n  paused by an admin" in text
    assert "no coordinator acts" in planned(run, "all-1g.10gb", "--node", "a", "-n", "default")


def test_a_lease_of_another_order_of_gpus_says_nothing(cluster: Cluster, run: Run) -> None:
    topology = topology_annotation.decode(node()["metadata"]["annotations"][keys.TOPOLOGY])
    assert topology is not None
    state = StateAnnotation(
        v=1, gen=topology.gen, seq=1, ok="ff", used="80", pods={pod_key(TEAM, "job"): "80"}
    )

    def pods(found: StateAnnotation, gpu: int) -> tuple[Any, bool]:
        notes = {"metadata": {"annotations": {keys.STATE: state_annotation.encode(found)}}}
        cluster.server.patch(LEASES, names.agent_lease("a"), notes, names.NAMESPACE)
        its = document(run, f'{{"{gpu}": {{"7g.80gb": 1}}}}', "--node", "a")["nodes"][0]["pods"]
        return its["in_the_way"], its["exact"]

    lease = {"metadata": {"name": names.agent_lease("a")}, "spec": {}}
    cluster.server.create(LEASES, lease, names.NAMESPACE)
    assert pods(state, 0) == ([], True)
    assert pods(state, 7) == (["team/job"], True)
    assert pods(replace(state, gen="0123456789"), 0) == (["team/job"], False)


CONFIGS = """\
version: v1
mig-configs:
  mine: [{devices: all, mig-enabled: true, mig-devices: {1g.20gb: 4}}]
"""


def test_a_name_is_looked_up_where_the_agents_have_it(
    cluster: Cluster, run: Run, tmp_path: Any
) -> None:
    agents = with_setting(
        "--mig-mode=enforce", "--mig-config=/etc/mig/c", volumes=[VOLUME], mounts=[MOUNT]
    )
    cluster.server.delete(DAEMON_SETS, "gpuscape-agent", "gpuscape")
    cluster.server.create(DAEMON_SETS, agents, "gpuscape")
    why = document(run, "mine", "--node", "a")["nodes"][0]
    assert why["fate"] == "unknown"
    assert "are in ConfigMap gpuscape/layouts, key c, which cannot be read" in why["why"]
    body = {"metadata": {"name": "layouts"}, "data": {"c": CONFIGS}}
    cluster.server.create(CONFIG_MAPS, body, "gpuscape")
    found = document(run, "mine", "--node", "a")["nodes"][0]
    assert found["then"] == {"nvidia.com/mig-1g.20gb": 32}
    file = tmp_path / "other.yaml"
    file.write_text(CONFIGS.replace("4", "3"))
    given = document(run, "mine", "--node", "a", "--configs", str(file))["nodes"][0]
    assert given["then"] == {"nvidia.com/mig-1g.20gb": 24}


OVERLAPPING = CONFIGS.replace(
    "[{", "[{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}, {"
)


@pytest.mark.parametrize(
    ("overlap", "then"), [("last", {"nvidia.com/mig-1g.20gb": 32}), ("refuse", None)]
)
def test_entries_that_overlap_mean_what_they_mean_to_the_agents(
    cluster: Cluster, run: Run, tmp_path: Any, overlap: str, then: dict[str, int] | None
) -> None:
    agents = with_setting(
        "--mig-mode=enforce",
        "--mig-config=/etc/mig/c",
        f"--mig-config-overlap={overlap}",
        volumes=[VOLUME],
        mounts=[MOUNT],
    )
    cluster.server.delete(DAEMON_SETS, "gpuscape-agent", "gpuscape")
    cluster.server.create(DAEMON_SETS, agents, "gpuscape")
    body = {"metadata": {"name": "layouts"}, "data": {"c": OVERLAPPING}}
    cluster.server.create(CONFIG_MAPS, body, "gpuscape")
    file = tmp_path / "same.yaml"
    file.write_text(OVERLAPPING)
    for options in ((), ("--configs", str(file))):
        node = document(run, "mine", "--node", "a", *options)["nodes"][0]
        assert node.get("then") == then if then else "gets another layout" in node["why"]


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["x"], "name Nodes with --node, or select them with -l"),
        (["x", "--node", "nobody"], "there is no node nobody"),
        (["x", "-l", "pool=y"], "no Node is selected by pool=y"),
        (['{"0": {"1g.5gb": -1}}', "-l", "pool=x"], "LAYOUT:1: 0.1g.5gb"),
    ],
)
def test_bad_input_is_refused(run: Run, words: list[str], why: str) -> None:
    assert why in planned(run, *words, code=2)


def test_a_cluster_that_shows_no_nodes_ends_the_command(cluster: Cluster, run: Run) -> None:
    cluster.fail("watch", Forbidden("watch nodes: no"), resource=NODES)
    assert "Nodes cannot be read: watch nodes: no" in planned(run, "x", "--node", "a", code=4)


def test_a_node_that_says_what_its_agent_found_is_believed(cluster: Cluster, run: Run) -> None:
    cluster.server.patch(NODES, "a", {"metadata": {"annotations": {keys.MIG_LAYOUT: "mine"}}})
    text = planned(run, "mine", "--node", "a", "-o", "wide")
    assert "tables" in text
