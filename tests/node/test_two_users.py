# SPDX-License-Identifier: Apache-2.0
"""Two users share a cluster: the files of ``examples/`` on real nodes, by the people of two teams.

What the kubelets have handed out is read from their own checkpoints, and links from the machine's
description. With ``--write-pages`` what was typed and what came is written to docs/two-users.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import pynvml
import pytest

from simulator.simulation import Simulation
from tests import examples
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.node import handed_out
from tests.node.chart_cluster import indices
from tests.node.handed_out import RunningContainer
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.real_node import SOON
from tests.node.user_stage import LINKED, PAIRS, WHOLE, UserStage, plugin_settings, user_stage
from tests.node.user_story import PAGE, Story

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

MIG: Final = "nvidia.com/mig-1g.5gb"
SHARED: Final = "nvidia.com/gpu.shared"
SHARES: Final = 4
"""Of each GPU, as ``time-slicing.yaml`` has it."""
LEFT_BY_OTHERS: Final = {1, 2}
"""GPUs of the second node that are free when the story begins, without a link."""
ENDED: Final = ("Failed", "Succeeded")
"""Phases in which a pod holds nothing any more."""
KILLED: Final = 137
"""Exit code of a container that is killed."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserStage]:
    with user_stage(tmp_path_factory.mktemp("users")) as found:
        yield found


def test_the_story_of_two_users(stage: UserStage, request: pytest.FixtureRequest) -> None:
    """Who has which devices is what the kubelets say. The node with links is full when the model
    comes, and so is the other one."""
    story = Story(stage.cluster)
    story.play("teams")
    stage.leave_free(stage.parts, LEFT_BY_OTHERS)

    training = trains_on_linked_gpus(stage, story)
    serves_from_a_mig_device(stage, story)
    fills_what_is_left(stage, story)
    takes_a_pair_from_an_experiment(stage, story)
    check_untouched(stage, training)
    waits_and_gets_a_pair_again(stage, story)
    check_untouched(stage, training)

    page = story.written()
    if request.config.getoption("--write-pages"):
        PAGE.write_text(page, encoding="utf-8")


def test_nodes_have_labels_by_the_admins_rules(stage: UserStage) -> None:
    """Those of ``examples/labels``, under a prefix that is not ours."""
    for node in (stage.pairs, stage.parts):
        labels = node.object()["metadata"]["labels"]
        made = {key: text for key, text in labels.items() if key.startswith("example.com/")}
        assert made == {"example.com/gpu-type": "a100-40", "example.com/gpu-memory": "40Gi"}


def trains_on_linked_gpus(stage: UserStage, story: Story) -> RunningContainer:
    """On the emptier node; whoever only packs would have taken the other one. Its container."""
    story.play("nodes")
    (explained,) = story.play("where")
    story.play("training")
    (pod,) = stage.started("vision", "training")
    until(stage.agrees, SOON)
    story.play("linked")
    assert explained.splitlines()[1].split()[:2] == [stage.pairs.name, "10"]
    assert pod["spec"]["nodeName"] == stage.pairs.name
    assert stage.gpus_of(pod, stage.pairs) in LINKED
    container = stage.container(pod, stage.pairs)
    assert container.visible == stage.grant(pod, stage.pairs).ids
    return container


def serves_from_a_mig_device(stage: UserStage, story: Story) -> None:
    """Of the size that the file asks for, on the node that has some."""
    story.play("small")
    (pod,) = stage.started("speech", "inference-mig")
    story.play("instance")
    grant = stage.grant(pod, stage.parts)
    (device,) = grant.ids
    assert grant.resource == MIG
    assert slices(stage.cluster.gpus[stage.parts.name].simulation, device) == 1
    assert stage.container(pod, stage.parts).visible == grant.ids


def fills_what_is_left(stage: UserStage, story: Story) -> None:
    """The experiments get the pairs, other pods the rest: no whole GPU is free."""
    story.play("experiments")
    pods = stage.started("speech", "experiment", 3)
    for number in range(5, 5 + len(LEFT_BY_OTHERS)):
        stage.add_model(f"model-{number}")
    until(stage.agrees, SOON)
    story.play("full")
    assert {stage.gpus_of(it, stage.pairs) for it in pods} < LINKED
    for node, number in ((stage.pairs, 8), (stage.parts, WHOLE)):
        assert set().union(*stage.cluster.held(node).values()) == set(range(number))


def takes_a_pair_from_an_experiment(stage: UserStage, story: Story) -> None:
    """One of the lowest class is preempted; it has its grace, and the model comes after it."""
    since = stage.cluster.cluster.resource_version()
    before = {it["metadata"]["uid"]: it for it in stage.pods("speech", "experiment")}
    had = {uid: stage.gpus_of(it, stage.pairs) for uid, it in before.items()}
    explained, _ = story.play("wanted")
    until(lambda: bool(left(stage.versions(since))), SOON)
    story.play("preempted")
    (pod,) = stage.started("vision", "inference")
    until(lambda: stage.phases("speech", "experiment") == ["Pending", "Running", "Running"], SOON)
    until(stage.agrees, SOON)
    story.play("serves")

    assert "No node is left, so the scheduler preempts: it deletes " in explained
    assert explained.count("left out: Insufficient nvidia.com/gpu (2 requested, 0 of ") == 2
    versions = stage.versions(since)
    (victim,) = left(versions)
    assert victim in before
    assert stage.gpus_of(pod, stage.pairs) == had[victim]
    assert had[victim] in LINKED
    check_grace([it for _, it in of(victim, versions)])
    check_order(versions, victim, pod["metadata"]["uid"], stage.pairs.name)
    path = "/apis/events.k8s.io/v1/namespaces/speech/events"
    events = stage.plane.demand("GET", path)["items"]
    assert [it["regarding"]["uid"] for it in events if it["reason"] == "Preempted"] == [victim]


def waits_and_gets_a_pair_again(stage: UserStage, story: Story) -> None:
    """What was preempted comes back, counts no failure, and runs when a pair is free."""
    story.play("waits")
    path = "/apis/batch/v1/namespaces/speech/jobs/experiment"
    assert stage.plane.demand("GET", path)["status"].get("failed", 0) == 0
    story.play("away")
    pods = stage.started("speech", "experiment", 3)
    story.play("again")
    assert {stage.gpus_of(it, stage.pairs) for it in pods} < LINKED


def check_untouched(stage: UserStage, training: RunningContainer) -> None:
    """It is the same process in the same container, with the same GPUs."""
    (pod,) = stage.pods("vision", "training")
    assert stage.container(pod, stage.pairs) == training
    assert [it["restartCount"] for it in pod["status"]["containerStatuses"]] == [0]
    assert training.visible == stage.grant(pod, stage.pairs).ids


def left(versions: list[Object]) -> set[str]:
    """UIDs of the pods that were asked to end."""
    return {it["metadata"]["uid"] for it in versions if "deletionTimestamp" in it["metadata"]}


def check_grace(victim: list[Object]) -> None:
    """It was preempted with the time of its file, and killed when that was over, not before."""
    grace = examples.only("experiment.yaml")["spec"]["template"]["spec"][
        "terminationGracePeriodSeconds"
    ]
    leaving = [it for it in victim if "deletionTimestamp" in it["metadata"]]
    first = leaving[0]["metadata"]
    assert first["deletionGracePeriodSeconds"] == grace
    asked = datetime.fromisoformat(first["deletionTimestamp"]) - timedelta(seconds=grace)
    (ended, *_) = [
        state
        for it in leaving
        for container in it["status"].get("containerStatuses", ())
        if (state := container["state"].get("terminated")) is not None
    ]
    lasted = datetime.fromisoformat(ended["finishedAt"]) - asked
    assert ended["exitCode"] == KILLED
    assert lasted.total_seconds() >= grace - 1  # written as whole seconds
    conditions = {it["type"]: it.get("reason") for it in leaving[-1]["status"]["conditions"]}
    assert conditions["DisruptionTarget"] == "PreemptionByScheduler"


def check_order(versions: list[Object], victim: str, pod: str, node: str) -> None:
    """The pod was nominated for the node, and bound there when the victim had ended."""
    ended = min(at for at, it in of(victim, versions) if it["status"]["phase"] in ENDED)
    bound = min(at for at, it in of(pod, versions) if it["spec"].get("nodeName"))
    waiting = [it["status"] for at, it in of(pod, versions) if at < bound]
    assert node in [it.get("nominatedNodeName") for it in waiting]
    assert bound > ended


def of(uid: str, versions: list[Object]) -> list[tuple[int, Object]]:
    """The versions of one pod, each with its place among all."""
    return [(at, it) for at, it in enumerate(versions) if it["metadata"]["uid"] == uid]


def slices(simulation: Simulation, device: str) -> int:
    """Of the GPU instance of a MIG device, by NVML."""
    with simulation:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device)
            assert pynvml.nvmlDeviceIsMigDeviceHandle(handle)
            return int(pynvml.nvmlDeviceGetAttributes_v2(handle).gpuInstanceSliceCount)
        finally:
            pynvml.nvmlShutdown()


def test_a_share_is_handed_out_where_the_plugin_has_the_configuration_of_the_file(
    stage: UserStage,
) -> None:
    """``development.yaml`` on a node without taints, whose plugin reads ``time-slicing.yaml``."""
    stage.remove_users()
    node = stage.pairs
    NvidiaPlugin(plane=stage.plane, node=node, pod=f"nvidia-device-plugin-{node.name}").stop()
    stage.taint(node, [])
    plugin = NvidiaPlugin.start(stage.plane, node, settings=plugin_settings("development"))
    until(lambda: plugin.allocatable().get(SHARED) == SHARES * len(PAIRS.gpus), SOON)

    who = stage.plane.kubeconfig(examples.PEOPLE["speech"], ("speech",))
    stage.cluster.type("kubectl -n speech apply -f examples/development.yaml", kubeconfig=who)
    (pod,) = stage.started("speech", "development")

    grant = stage.grant(pod, node)
    (share,) = grant.ids
    assert grant.resource == SHARED
    assert handed_out.SHARE in share
    assert handed_out.device_of(share) in indices(stage.cluster.gpus[node.name].simulation)
