# SPDX-License-Identifier: Apache-2.0
"""The shipped DaemonSet on real nodes: in containers, under kubelets, through what happens there.

Whatever is done to agent, kubelet or containerd: no version of a Node that the API server ever
had lacks a label, and every version of a Lease names the agent that runs, or none.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from api import keys, names
from tests.agent.agent_process import runs, until
from tests.controlplane.audit import Event
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.node.container_agents import (
    LABELS,
    PODS,
    Agent,
    agents,
    change,
    episode,
    restarts,
    roll_out,
)
from tests.node.process_cgroup import ProcessCgroup
from tests.node.real_cluster import AGENT, RealCluster
from tests.node.real_node import SOON, RealNode
from tests.slower import SLOWER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
"""The first one waits for an image, two nodes and their agents."""

BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
REFUSED: Final = 422
"""By an admission policy."""
KILLED: Final = 137
"""The exit code of a container whose program SIGKILL ended."""
KUBELETS: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
FIRST_SECONDS: Final = 15.0 * SLOWER
"""From the start of the container, which is known to the second, to the Node's first labels."""
CLEAN_SECONDS: Final = 10.0
"""For an agent that is asked to end; the kubelet would kill it after 30."""
WRONG: Final = "7"
"""A number of GPUs that the machine has not."""
FILL: Final = "/run/fill"
CHANGING: Final = ("nvidia.com/gfd.timestamp",)


def test_labels_come_within_15_s_of_the_containers_start(cluster: RealCluster) -> None:
    """First of all, as it is about the first agents; nothing is set for the size of the cluster."""
    for agent in agents(cluster).values():
        began = datetime.fromisoformat(agent.status["state"]["running"]["startedAt"])
        first, *_ = [
            datetime.fromisoformat(event["requestReceivedTimestamp"])
            for event in cluster.plane.audit(
                user=f"system:serviceaccount:{names.NAMESPACE}:{AGENT}",
                verb="patch",
                resource="nodes",
                name=agent.node.name,
                code=200,
            )
            if "dryRun" not in event["requestURI"]
        ]
        assert timedelta(0) < first - began < timedelta(seconds=FIRST_SECONDS)


def test_agents_are_ready_and_labels_and_leases_are_those_of_the_machine(
    cluster: RealCluster,
) -> None:
    for agent in agents(cluster).values():
        assert agent.status["restartCount"] == 0
        shown = agent.node.object()["metadata"]
        found = {key: text for key, text in shown["labels"].items() if key in LABELS}
        assert {**found, **dict.fromkeys(CHANGING)} == {**LABELS, **dict.fromkeys(CHANGING)}
        assert keys.TOPOLOGY in shown["annotations"]
        until(lambda name=agent.node.name: has_state(cluster, name), SOON)  # type: ignore[misc]
        assert 'gpuscape_source_up{source="pod-resources"} 1' in agent.metrics()


def test_the_container_is_confined_by_the_kernel(cluster: RealCluster) -> None:
    for agent in agents(cluster).values():
        for process in (agent.process, *agent.process.children(recursive=True)):
            proc = Path(f"/proc/{process.pid}")
            status = dict(
                line.split(":\t", 1) for line in (proc / "status").read_text().splitlines()
            )
            capabilities = [status[f"Cap{one}"] for one in ("Inh", "Prm", "Eff", "Bnd", "Amb")]
            assert {int(mask, 16) for mask in capabilities} == {0}
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
            mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
            (root,) = [it for it in mounts if it[4] == "/"]
            assert "ro" in root[5].split(",")
        (container,) = agent.pod["spec"]["containers"]
        mebibytes = container["resources"]["limits"]["memory"].removesuffix("Mi")
        assert agent.cgroup.memory_limit_bytes == int(mebibytes) << 20


def test_the_token_in_the_container_changes_its_own_node_and_nothing_else(
    cluster: RealCluster,
) -> None:
    agent, other = agents(cluster).values()

    assert answer(cluster, agent, agent.node, keys.FOUND) == HTTPStatus.OK
    assert answer(cluster, agent, agent.node, "example.com/label") == REFUSED
    assert answer(cluster, agent, other.node, keys.FOUND) == REFUSED


def answer(cluster: RealCluster, agent: Agent, node: RealNode, key: str) -> int:
    """With what status the API server answers who uses the agent's token to set a label."""
    return cluster.plane.request(
        "PATCH",
        f"/api/v1/nodes/{node.name}?dryRun=All&fieldManager={AGENT}",
        {"metadata": {"labels": {key: "7"}}},
        token=agent.token(),
        content_type=MERGE_PATCH,
    ).status


def test_an_agent_writes_nothing_while_its_policy_is_bound_to_nobody(cluster: RealCluster) -> None:
    """As where the binding was forgotten; the API server goes on refusing for a moment."""
    old, _ = agents(cluster).values()
    with episode(cluster) as happens:
        with bound_to_nobody(cluster):
            until(
                lambda: answer(cluster, old, old.node, "example.com/label") == HTTPStatus.OK, SOON
            )
            cluster.plane.demand("DELETE", f"{PODS}/{old.name}")
            new = successor(cluster, old)
            cluster.label(new.node.name, {keys.FOUND: WRONG})  # it would put that right
            open_policy = f'gpuscape_confinement_enforced{{policy="{names.AGENT_NODE}"}} 0'
            until(lambda: open_policy in new.metrics(), SOON)
            tries = len(new.requests(cluster))
            until(lambda: len(new.requests(cluster)) > tries, SOON)
            written = [it for it in new.requests(cluster) if is_write(it)]
            still = number(new.node)
        agents(cluster)
        until(lambda: number(new.node) == LABELS[keys.FOUND], SOON)  # it is confined again

    assert (written, still) == ([], WRONG)
    assert [it for it in happens.holders(old.node.name) if it != old.uid] == ["", new.uid]


def number(node: RealNode) -> str:
    """Of GPUs, by its label."""
    return str(node.object()["metadata"]["labels"][keys.FOUND])


@contextmanager
def bound_to_nobody(cluster: RealCluster) -> Iterator[None]:
    """The agents' policy for Nodes confines none of them while the block lasts."""
    cluster.plane.demand("DELETE", f"{BINDINGS}/{names.AGENT_NODE}")
    try:
        yield
    finally:
        cluster.plane.kubectl("apply", "-k", cluster.overlay())


def successor(cluster: RealCluster, old: Agent) -> Agent:
    """The agent in place of one that was deleted, once it runs and the old one is gone."""
    found: list[Agent] = []

    def is_alone() -> bool:
        pods = cluster.pods(old.node.name)  # one look: two pods may be there in between
        found[:] = [Agent(node=old.node, pod=it) for it in pods if is_started(it)]
        return len(pods) == 1 and [it.uid for it in found] not in ([], [old.uid])

    until(is_alone, SOON)
    return found[0]


def is_started(pod: Object) -> bool:
    """Whether its container runs."""
    return any(it.get("started") for it in pod["status"].get("containerStatuses", ()))


def is_write(event: Event) -> bool:
    """Whether a request changed something, or would have."""
    return event["verb"] in ("create", "update", "patch", "delete") and (
        "dryRun=All" not in event["requestURI"]
    )


def test_a_pod_that_is_deleted_ends_cleanly_and_hands_over(cluster: RealCluster) -> None:
    old, _ = agents(cluster).values()
    with episode(cluster) as happens:
        cluster.plane.demand("DELETE", f"{PODS}/{old.name}")
        until(lambda: old.uid not in uids(cluster, old.node), SOON)
        new = agents(cluster)[old.node.name]

    versions = happens.pod(old.name)
    (container,) = versions[-1]["status"]["containerStatuses"]
    terminated = container["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    asked = next(it["metadata"] for it in versions if "deletionTimestamp" in it["metadata"])
    to_be_killed = moment(asked["deletionTimestamp"]) - moment(terminated["finishedAt"])
    took_seconds = asked["deletionGracePeriodSeconds"] - to_be_killed.total_seconds()
    assert took_seconds < CLEAN_SECONDS
    assert [it for it in happens.holders(old.node.name) if it != old.uid] == ["", new.uid]


def test_scaled_to_zero_and_back_labels_stay_and_nobody_holds_the_leases(
    cluster: RealCluster,
) -> None:
    before = agents(cluster)
    with episode(cluster) as happens:
        change(cluster, selected({"example.com/nowhere": "true"}))
        until(lambda: not any(cluster.pods(node) for node in cluster.nodes), SOON)
        holders = {node: cluster.lease(node)["spec"].get("holderIdentity") for node in before}
        assert {holder or "" for holder in holders.values()} == {""}
        change(cluster, selected({"example.com/nowhere": None}))
        after = agents(cluster)

    for node, old in before.items():
        named = [it for it in happens.holders(node) if it != old.uid]
        assert named == ["", after[node].uid]


def test_the_agent_goes_on_while_the_kubelet_is_restarted_and_finds_its_new_socket(
    cluster: RealCluster,
) -> None:
    agent, _ = agents(cluster).values()
    process = agent.process
    with episode(cluster) as happens:
        agent.node.stop("kubelet")
        until(lambda: 'gpuscape_source_up{source="pod-resources"} 0' in agent.metrics(), SOON)
        renewed = kubelets_lease(cluster, agent.node)
        agent.node.start_kubelet()
        until(lambda: kubelets_lease(cluster, agent.node) > renewed, SOON)
        until(lambda: 'gpuscape_source_up{source="pod-resources"} 1' in agent.metrics(), SOON)
        after = agents(cluster)[agent.node.name]

    assert runs(process)
    assert unchanged(after) == unchanged(agent)
    assert set(happens.holders(agent.node.name)) <= {agent.uid}


def test_the_agent_goes_on_while_containerd_is_restarted(cluster: RealCluster) -> None:
    agent, _ = agents(cluster).values()
    process = agent.process
    with episode(cluster) as happens:
        agent.node.stop("containerd")
        assert "gpuscape_gpus" in agent.metrics()
        agent.node.start_containerd()
        container = agent.status["containerID"].removeprefix("containerd://")
        tasks = agent.node.run("ctr", "--namespace=k8s.io", "tasks", "ls").splitlines()
        assert [line.split()[2] for line in tasks if line.startswith(container)] == ["RUNNING"]
        after = agents(cluster)[agent.node.name]

    assert runs(process)
    assert unchanged(after) == unchanged(agent)
    assert set(happens.holders(agent.node.name)) <= {agent.uid}


def test_an_agent_that_is_killed_while_containerd_is_down_comes_back_with_it(
    cluster: RealCluster,
) -> None:
    agent, _ = agents(cluster).values()
    with episode(cluster) as happens:
        agent.node.stop("containerd")
        process = agent.process
        process.kill()
        until(lambda: not runs(process), SOON)
        agent.node.start_containerd()
        until(lambda: restarts(cluster, agent) > agent.status["restartCount"], SOON)
        after = agents(cluster)[agent.node.name]

    assert after.status["restartCount"] == agent.status["restartCount"] + 1
    assert after.uid == agent.uid
    assert set(happens.holders(agent.node.name)) <= {agent.uid}


def test_an_agent_that_the_kernel_kills_for_memory_comes_back_in_its_pod(
    cluster: RealCluster,
) -> None:
    agent, _ = agents(cluster).values()
    with episode(cluster) as happens:
        use_up_memory(agent)
        until(lambda: restarts(cluster, agent) > agent.status["restartCount"], SOON)
        after = agents(cluster)[agent.node.name]

    last = after.status["lastState"]["terminated"]
    assert (last["reason"], last["exitCode"]) == ("OOMKilled", KILLED)
    assert after.uid == agent.uid
    assert set(happens.holders(agent.node.name)) <= {agent.uid}


def test_a_drained_node_keeps_its_agent(cluster: RealCluster) -> None:
    agent, _ = agents(cluster).values()
    with episode(cluster) as happens:
        options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={SOON:.0f}s")
        cluster.plane.kubectl("drain", agent.node.name, *options)
        assert agent.node.object()["spec"]["unschedulable"]
        cluster.plane.kubectl("uncordon", agent.node.name)
        after = agents(cluster)[agent.node.name]

    assert unchanged(after) == unchanged(agent)
    assert set(happens.holders(agent.node.name)) <= {agent.uid}


def test_an_update_with_two_agents_at_a_time_and_its_undoing_lose_nothing(
    cluster: RealCluster,
) -> None:
    """Of two on a node the second only reads, until the first has released the Lease."""
    surge = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    for act in (
        lambda: change(cluster, {"spec": {"updateStrategy": surge, **annotated("new")}}),
        lambda: cluster.plane.kubectl(
            "-n", names.NAMESPACE, "rollout", "undo", f"daemonset/{AGENT}"
        ),
    ):
        before = agents(cluster)
        with episode(cluster) as happens:
            act()
            roll_out(cluster)
            after = agents(cluster)
        for node, old in before.items():
            named = [it for it in happens.holders(node) if it != old.uid]
            assert named == ["", after[node].uid]


def uids(cluster: RealCluster, node: RealNode) -> list[str]:
    return [it["metadata"]["uid"] for it in cluster.pods(node.name)]


def unchanged(agent: Agent) -> tuple[object, ...]:
    """What stays while a container goes on."""
    status = agent.status
    return agent.uid, status["containerID"], status["restartCount"]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def kubelets_lease(cluster: RealCluster, node: RealNode) -> str:
    """When the kubelet last renewed its own Lease, in a form that sorts."""
    spec = cluster.plane.demand("GET", f"{KUBELETS}/{node.name}")["spec"]
    return str(spec["renewTime"])


def selected(labels: Mapping[str, str | None]) -> Object:
    return {"spec": {"template": {"spec": {"nodeSelector": dict(labels)}}}}


def annotated(value: str) -> Object:
    """A change of the pod's template that changes nothing for the agent."""
    return {"template": {"metadata": {"annotations": {"example.com/version": value}}}}


def use_up_memory(agent: Agent) -> None:
    """Have a small process in the container's cgroup fill a tmpfs until the kernel kills.

    The pages of the tmpfs count for the cgroup and cannot be freed, and the kernel kills the
    largest process there, which is the agent; then the small one.
    """
    inside = agent.node.run("cat", f"/proc/{pid_inside(agent)}/cgroup")
    folder = ProcessCgroup(text=inside).folder("memory")
    fill = f"echo 0 > {folder}/cgroup.procs && exec dd if=/dev/zero bs=1M"
    with suppress(subprocess.CalledProcessError):
        agent.node.run("sh", "-c", f"{fill} count=400 of={FILL}")
    agent.node.run("rm", FILL)


def has_state(cluster: RealCluster, node: str) -> bool:
    """Whether the agent has published which GPUs the kubelet has handed out."""
    return keys.STATE in cluster.lease(node)["metadata"].get("annotations", {})


def pid_inside(agent: Agent) -> int:
    """The agent's process id as seen on its machine."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    (line,) = re.findall(r"^NSpid:\s+(.*)$", status, re.MULTILINE)
    # outside, on the machine, in the container
    return int(line.split()[1])
