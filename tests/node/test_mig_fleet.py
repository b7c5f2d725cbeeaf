# SPDX-License-Identifier: Apache-2.0
"""An admin annotates Nodes, and nothing else: real nodes change their MIG layouts, one at a time,
next to real pods, with the shipped manifests and NVIDIA's device plugin.

With ``--write-pages`` what was typed and what came back is written to docs/mig-recording.md.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import psutil
import pytest

from api import keys
from tests.agent.agent_process import runs, until
from tests.controlplane.plane import Object
from tests.controlplane.programs import ROOT
from tests.node.gpu_cluster import NAMESPACE, PODS
from tests.node.mig_change_trial import single_machine
from tests.node.mig_holder import MigHolderPod
from tests.node.mig_stage import (
    COORDINATOR,
    LARGE,
    LAYOUT,
    LONG,
    SERVED,
    SEVENTHS,
    SMALL,
    MigStage,
    mig_stage,
)
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

BUDGETS: Final = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
BUDGET: Final[Object] = {
    "metadata": {"name": "one-serves"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": SERVED}},
}
GRACE_SECONDS: Final = 15
KILLED: Final = 128 + signal.SIGKILL
"""Exit code of a container that is killed."""


PAGE: Final = ROOT / "docs/mig-recording.md"
ABOUT: Final = (
    "Written by `tests/node/test_mig_fleet.py` with `--write-pages`: the commands and their "
    "output, with minutes and seconds since the first command. The cluster has two real nodes "
    "(kubelet and containerd 1.37.1 and 2.4.2, NVIDIA's device plugin 0.19.0) with one simulated "
    "A100 each, and the shipped agents, actuators and coordinators. The canary's ten minutes are "
    "set to one second."
)
NODES: Final = (
    "custom-columns=NODE:.metadata.name,CORDONED:.spec.unschedulable,"
    r"1G:.status.allocatable.nvidia\.com/mig-1g\.5gb,3G:.status.allocatable.nvidia\.com/mig-3g\.20gb"
)
EVENTS: Final = "custom-columns=NODE:.involvedObject.name,REASON:.reason,MESSAGE:.message"
PODS_COLUMNS: Final = "custom-columns=POD:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase"


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[MigStage]:
    with mig_stage(tmp_path_factory.mktemp("fleet"), single_machine(), single_machine()) as found:
        yield found
        if request.config.getoption("--write-pages") and not request.session.testsfailed:
            PAGE.write_text(found.admin.page("A recording of MIG changes", ABOUT), "utf-8")


def see(stage: MigStage, *commands: str) -> None:
    """What an admin looks at between two moments."""
    of_nodes = "--field-selector=involvedObject.kind=Node"
    looks = {
        "nodes": ("kubectl", "get", "nodes", "-o", NODES),
        "pods": ("kubectl", "get", "pods", "-o", PODS_COLUMNS),
        "mig": ("gpuscape", "mig", "nodes"),
        "events": ("kubectl", "get", "events", of_nodes, "-o", EVENTS),
    }
    for command in commands:
        stage.admin.run(*looks[command])


def test_nodes_change_when_their_pods_allow_it_and_no_sooner(stage: MigStage) -> None:
    there = stage.there
    busy, idle = stage.nodes
    until(lambda: {stage.phase(node) for node in stage.nodes} == {"idle"}, LONG)
    holder = MigHolderPod.start(there, stage.nodes[busy], "holder", SMALL)
    since = there.cluster.resource_version()
    stage.admin.says("A pod uses one of five small instances on the first node.")
    see(stage, "nodes", "pods")

    stage.admin.says("Both Nodes are annotated, and nothing else is done.")
    for node in stage.nodes:
        stage.admin.run("kubectl", "annotate", "node", node, f"{keys.MIG_LAYOUT}={LAYOUT}")

    until(lambda: stage.is_changed(idle), LONG)
    until(lambda: stage.phase(busy) == "waiting", SOON)
    stage.admin.says(
        "The idle node has changed. The other node waits for its pod and stays schedulable."
    )
    see(stage, "mig", "nodes", "pods")
    status = stage.status(busy)
    assert status is not None
    assert status.pods == ("default/holder",), status
    assert stage.is_open(busy)
    holder.check()
    late = MigHolderPod.start(there, stage.nodes[idle], "late", LARGE)
    stage.admin.run("kubectl", "delete", "pod", "holder", "--wait=false")
    until(lambda: not stage.is_open(busy) or stage.is_changed(busy), LONG)
    stage.admin.says("Now the first node gets a slot.")
    see(stage, "mig", "nodes")
    until(lambda: stage.is_changed(busy), LONG)
    stage.admin.says("Both have their desired layout.")
    see(stage, "mig", "nodes", "events")
    late.check()

    after = MigHolderPod.start(there, stage.nodes[busy], "after", LARGE)
    after.check()
    stage.check_cordons(since)
    for pod in (late, after):
        pod.delete()
        until(lambda pod=pod: not pod.is_there, SOON)  # type: ignore[misc]


def test_pods_are_evicted_where_that_is_asked_for_and_their_budget_allows_it(
    stage: MigStage,
) -> None:
    """None is, and nothing else happens, while a PodDisruptionBudget forbids it."""
    node = next(iter(stage.nodes))
    plane = stage.plane
    first = stage.serve(node)
    plane.demand("POST", BUDGETS, BUDGET)
    since = stage.there.cluster.resource_version()
    stage.admin.says(
        "A ReplicaSet's pod uses an instance that would be destroyed, and its PodDisruptionBudget "
        "forbids its eviction. The node has drain: evict."
    )
    see(stage, "pods")
    asked = (f"{keys.DRAIN}=evict", f"{keys.MIG_LAYOUT}={SEVENTHS}", "--overwrite")
    stage.admin.run("kubectl", "annotate", "node", node, *asked)

    until(lambda: "MigDrainBlocked" in stage.events(node), LONG)
    see(stage, "events", "nodes")
    assert BUDGET["metadata"]["name"] in stage.events(node)["MigDrainBlocked"]
    assert stage.is_open(node)
    assert [pod["metadata"]["uid"] for pod in stage.served()] == [first["metadata"]["uid"]]
    stage.admin.run("kubectl", "delete", "poddisruptionbudget", BUDGET["metadata"]["name"])
    until(lambda: stage.is_changed(node, {SMALL: 7}), LONG)
    stage.admin.says("Its pod was evicted. The new pod waits for an instance of that size.")
    see(stage, "mig", "nodes", "pods")

    (second,) = stage.served()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["status"]["phase"] == "Pending"
    stage.annotate(node, drain=None, mig_layout=LAYOUT)
    until(lambda: [pod["status"]["phase"] for pod in stage.served()] == ["Running"], LONG)
    stage.admin.says("The previous layout is desired again, and the pod runs.")
    see(stage, "mig", "pods")
    stage.stop_serving()
    until(lambda: stage.is_changed(node), LONG)
    stage.check_cordons(since)


def test_changes_end_although_kubelet_coordinator_and_agent_are_killed_in_the_middle(
    stage: MigStage,
) -> None:
    """Each of them at another moment of a change, on both nodes; pods on GPUs run on."""
    until(lambda: {stage.phase(node) for node in stage.nodes} <= {"idle", "unchanged"}, LONG)
    since = stage.there.cluster.resource_version()
    for node in stage.nodes:
        stage.annotate(node, mig_layout=SEVENTHS)
    struck: set[str] = set()

    def is_done(node: str) -> bool:
        return stage.is_changed(node, {SMALL: 7})

    while not all(map(is_done, stage.nodes)):
        until(lambda: bool(stage.begun() - struck) or all(map(is_done, stage.nodes)), LONG)
        for node in stage.begun() - struck:
            struck.add(node)
            strike(stage, node)
    assert struck
    stage.check_cordons(since)


def strike(stage: MigStage, node: str) -> None:
    """SIGKILL the kubelet of a node that is cordoned for its change, all coordinators, and then its
    agent."""
    machine = stage.nodes[node]
    machine.stop("kubelet", signal.SIGKILL)
    stage.kill(COORDINATOR)
    machine.start_kubelet()
    until(lambda: stage.phase(node) in ("changing", "unchanged"), LONG)
    for process in machine.processes("gpuscape agent"):
        process.kill()


def test_a_pod_that_ignores_sigterm_is_waited_for_or_killed_when_its_grace_is_over(
    stage: MigStage,
) -> None:
    """Waited for as any other, for as long as it runs. Evicted, it has its grace, and the kubelet
    kills its container; no instance goes before."""
    node = list(stage.nodes)[-1]
    machine, cluster = stage.nodes[node], stage.there.cluster
    stage.annotate(node, mig_layout=SEVENTHS)
    until(lambda: stage.is_changed(node, {SMALL: 7}), LONG)
    pod = stage.serve(node, SMALL, arguments=["stubborn"], grace_seconds=GRACE_SECONDS)
    (program,) = machine.processes("mig-holder stubborn")
    before, since = stage.instances(node), cluster.resource_version()

    stage.annotate(node, mig_layout=LAYOUT)
    until(lambda: stage.phase(node) == "waiting", LONG)
    waited_until = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < waited_until:
        check_untouched(stage, node, program, before)
        assert stage.is_open(node)
    assert "deletionTimestamp" not in stage.served()[0]["metadata"]

    stage.annotate(node, drain="evict")
    # the one that follows it waits, and may come first in the list
    until(lambda: any("deletionTimestamp" in it["metadata"] for it in stage.served()), LONG)
    while runs(program):
        check_untouched(stage, node, program, before)
    until(lambda: stage.is_changed(node), LONG)

    evicted, killed = last_times(cluster.versions(PODS, since=since, name=pod["metadata"]["name"]))
    assert (killed - evicted).total_seconds() >= GRACE_SECONDS - 1  # written as whole seconds
    stage.stop_serving()
    stage.annotate(node, drain=None)
    stage.check_cordons(since)


def check_untouched(
    stage: MigStage, node: str, program: psutil.Process, before: frozenset[object]
) -> None:
    """As long as the program runs, every instance is there."""
    now = stage.instances(node)
    assert now == before or not runs(program)
    time.sleep(0.1)


def last_times(versions: list[Object]) -> tuple[datetime, datetime]:
    """When a pod was evicted, and when its container ended, which was killed."""
    leaving = [it for it in versions if "deletionTimestamp" in it["metadata"]]
    evicted = min(datetime.fromisoformat(it["metadata"]["deletionTimestamp"]) for it in leaving)
    ended = [
        state
        for it in leaving
        for container in it["status"].get("containerStatuses", ())
        if (state := container["state"].get("terminated")) is not None
    ]
    assert {it["exitCode"] for it in ended} == {KILLED}, ended
    grace = leaving[0]["metadata"]["deletionGracePeriodSeconds"]
    assert grace == GRACE_SECONDS
    return (evicted - timedelta(seconds=grace), datetime.fromisoformat(ended[-1]["finishedAt"]))
