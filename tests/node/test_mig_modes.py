# SPDX-License-Identifier: Apache-2.0
"""MIG goes on and off on a DGX A100 of a real cluster, by annotations of its Node and nothing else.

What the driver has is read from the simulated machine's state file, and what pods were given from
the kubelet's checkpoint. With ``--write-pages`` what was typed and what came back is written to
docs/mig-mode-recording.md.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from msgspec.structs import replace

from api import keys, mig_permit_annotation, names
from api.mig_permit_annotation import PermitPhase
from fleet.rollout_settings import PAUSED
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription, ResetSpec
from simulator.state.machine_state import SimulatedGpuState
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.controlplane.programs import ROOT
from tests.node import handed_out
from tests.node.chart_cluster import indices
from tests.node.gpu_cluster import PODS
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.handed_out import RunningContainer
from tests.node.mig_holder import MigHolderPod
from tests.node.mig_stage import LONG, SMALL, MigStage, mig_stage
from tests.node.nvidia_plugin import GPU
from tests.node.plugin_daemonset import DEPLOYED
from tests.node.real_node import SOON, RealNode

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

GPUS: Final = 8
USED: Final = 1
"""Index of the GPU that a pod uses when the story begins."""
SPARED: Final = 5
"""Index of the GPU of a pod that runs through all of it."""
DIVIDED: Final = range(4)
"""Indices of the GPUs on which MIG goes on; it stays off on the others."""
LAYOUT: Final = json.dumps({"0-3": {"1g.5gb": 7}})
ALLOCATABLE: Final = {GPU: GPUS - len(DIVIDED), SMALL: 7 * len(DIVIDED)}
WAITED_SECONDS: Final = 20.0
"""Time in which a change begins that nothing is in the way of."""
RESET_SECONDS: Final = 2.0

PAGE: Final = ROOT / "docs/mig-mode-recording.md"
TITLE: Final = "A recording of MIG turned on and off"
ABOUT: Final = (
    "Written by `tests/node/test_mig_modes.py` with `--write-pages`, which `make long` calls: the "
    "commands and their output, with minutes and seconds since the first command. The node is a "
    "simulated DGX A100 with a real kubelet, containerd and NVIDIA's device plugin 0.19.0, whose "
    "DaemonSet has the GPU operator's node selector. The agent, the actuator and the coordinators "
    "are the shipped ones, with `mig-mode: enforce`. The agent's pod sees the host's PIDs, because "
    "the simulated driver's `/proc` shows no processes. Fabric Manager is a program of that name "
    f"that does nothing. A reset takes {RESET_SECONDS:.0f} s."
)
NODES: Final = (
    "custom-columns=NODE:.metadata.name,CORDONED:.spec.unschedulable,"
    r"GPU:.status.allocatable.nvidia\.com/gpu,1G:.status.allocatable.nvidia\.com/mig-1g\.5gb"
)
VERSIONS: Final = (
    "custom-columns=NODE:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion,"
    "RUNTIME:.status.nodeInfo.containerRuntimeVersion"
)
PHASES: Final = "custom-columns=POD:.metadata.name,PHASE:.status.phase"
EVENTS: Final = "custom-columns=TIME:.eventTime,REASON:.reason,MESSAGE:.message"


def dgx() -> MachineDescription:
    """MIG is off on all of its GPUs, and a reset takes its time."""
    return replace(load_machine("dgx-a100"), reset=ResetSpec(seconds=RESET_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeStage:
    """The one node, its admin, and its judges."""

    stage: MigStage
    node: str
    uuids: tuple[str, ...]
    """Of the GPUs, by index."""

    @property
    def machine(self) -> RealNode:
        """The node itself."""
        return self.stage.nodes[self.node]

    def annotate(self, *values: str) -> None:
        """What the admin does; nothing else in this story changes a thing."""
        self.stage.admin.run("kubectl", "annotate", "node", self.node, *values, "--overwrite")

    def see(self, *looks: str) -> None:
        """What the admin looks at."""
        commands = {
            "versions": ("kubectl", "get", "nodes", "-o", VERSIONS),
            "nodes": ("kubectl", "get", "nodes", "-o", NODES),
            "pods": ("kubectl", "get", "pods", "-o", PHASES),
            "free": ("gpuscape", "free", "--pods"),
            "why": ("gpuscape", "mig", "why", self.node),
            "coordinator": self._events(names.COORDINATOR),
            "agent": self._events(names.AGENT),
        }
        for look in looks:
            self.stage.admin.run(*commands[look])

    def _events(self, by: str) -> tuple[str, ...]:
        about = f"--field-selector=involvedObject.name={self.node},reportingComponent={by}"
        return ("kubectl", "get", "events", about, "--sort-by=.eventTime", "-o", EVENTS)

    def says(self, text: str) -> None:
        """A sentence on the page."""
        self.stage.admin.says(text)

    def pod(self, name: str) -> Object:
        """As the API server has it."""
        found: Object = self.stage.plane.demand("GET", f"{PODS}/{name}")
        return found

    def end_program(self, holder: MigHolderPod) -> int:
        """Have a pod's program end by itself, with success; the pod's resource version then."""
        (program,) = self.machine.processes("/mig-holder")
        program.terminate()
        until(lambda: self.pod(holder.name)["status"]["phase"] == "Succeeded", SOON)
        return int(self.pod(holder.name)["metadata"]["resourceVersion"])

    def container(self, pod: str) -> RunningContainer:
        """The only one of a pod; it runs."""
        (found,) = (it for it in handed_out.running(self.machine) if it.pod == pod)
        return found

    # what is true

    def held(self) -> dict[int, str]:
        """Index of a whole GPU to the pod that has it, by the kubelet."""
        index = {uuid: gpu for gpu, uuid in enumerate(self.uuids)}
        by_pod = handed_out.whole_gpus(self.stage.plane, self.machine, index)
        return {gpu: pod.partition("/")[2] for pod, found in by_pod.items() for gpu in found}

    def modes(self) -> list[tuple[bool, bool]]:
        """MIG mode of each GPU, current and pending."""
        return [(gpu.mig, gpu.mig_pending) for gpu in self._gpus()]

    def resets(self) -> list[int]:
        """How often each GPU was reset."""
        return [gpu.resets for gpu in self._gpus()]

    def instances(self) -> list[Counter[str]]:
        """Profiles of the GPU instances on each GPU."""
        return [Counter(it.profile for it in gpu.instances) for gpu in self._gpus()]

    def _gpus(self) -> Collection[SimulatedGpuState]:
        return self.stage.there.gpus[self.node].simulation.state.gpus.values()

    def versions(self, since: str) -> list[Object]:
        """Those of the Node, oldest first."""
        return self.stage.there.cluster.versions("/api/v1/nodes", since=since, name=self.node)


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ModeStage]:
    with mig_stage(tmp_path_factory.mktemp("modes"), dgx(), modes=True) as found:
        (node,) = found.nodes
        uuids = tuple(indices(found.there.gpus[node].simulation))
        yield ModeStage(stage=found, node=node, uuids=uuids)
        if request.config.getoption("--write-pages") and not request.session.testsfailed:
            PAGE.write_text(found.admin.page(TITLE, ABOUT), "utf-8")


def test_mig_goes_on_and_off_by_annotations_alone(stage: ModeStage) -> None:
    """Once the pod on one of the GPUs has ended, and without a touch of the other GPUs."""
    holder = occupy(stage)
    spared, since = stage.container("notebook"), stage.stage.there.cluster.resource_version()
    assert stage.stage.offers(stage.node) == {GPU: GPUS}

    is_refused_without_permission(stage)
    waits_for_the_pod(stage, holder, since)
    goes_on_when_it_has_ended(stage, holder, since)
    goes_off_when_its_pod_has_ended(stage)

    assert stage.container("notebook") == spared
    check_all_work(stage)
    stage.stage.check_cordons(since)
    assert [outcome for _, outcome in stage.stage.ends(stage.node, since)] == ["applied"] * 2


def occupy(stage: ModeStage) -> MigHolderPod:
    """A pod whose program uses one of the GPUs that change, and a pod on one that does not."""
    plane, there = stage.stage.plane, stage.stage.there
    for number in range(GPUS):
        pod = gpu_pod(f"other-{number}", gpus("main", 1), node=stage.node)
        plane.demand("POST", PODS, pod)
    until(lambda: len(stage.held()) == GPUS, SOON)
    others = stage.held()

    def leave(gpu: int) -> None:
        plane.demand("DELETE", f"{PODS}/{others.pop(gpu)}?gracePeriodSeconds=0")

    leave(USED)
    until(lambda: USED not in stage.held(), SOON)
    holder = MigHolderPod.start(there, stage.machine, "training", GPU)
    assert holder.devices == {stage.uuids[USED]}
    leave(SPARED)
    until(lambda: SPARED not in stage.held(), SOON)
    plane.demand("POST", PODS, gpu_pod("notebook", gpus("main", 1), node=stage.node))
    until(lambda: stage.held().get(SPARED) == "notebook", SOON)
    for gpu in tuple(others):
        leave(gpu)
    until(lambda: stage.held() == {USED: "training", SPARED: "notebook"}, SOON)
    until(lambda: stage.pod("notebook")["status"]["phase"] == "Running", SOON)
    return holder


def is_refused_without_permission(stage: ModeStage) -> None:
    """As everywhere: mig-mode-change is off by default."""
    stage.says(
        f"The node has eight A100 with MIG off. The pod training uses GPU {USED}, and notebook "
        f"GPU {SPARED}."
    )
    until(lambda: stage.stage.phase(stage.node) == "idle", LONG)
    stage.see("versions", "nodes", "pods", "free")
    stage.says(
        "The admin desires seven small instances on each of four GPUs. The agent refuses: "
        "mig-mode-change is off."
    )
    stage.annotate(f"{keys.MIG_LAYOUT}={LAYOUT}")
    until(lambda: stage.stage.phase(stage.node) == "refused", LONG)
    stage.see("why")
    status = stage.stage.status(stage.node)
    assert status is not None
    assert "mig-mode-change is off" in status.reason


def waits_for_the_pod(stage: ModeStage, holder: MigHolderPod, since: str) -> None:
    """Nothing happens while it runs: no slot, no cordon, no mode that waits for a reset."""
    stage.says(
        "The admin permits that the driver changes the mode. The change waits for the pod on GPU 1."
    )
    stage.annotate(f"{keys.MIG_MODE_CHANGE}=driver")
    until(lambda: stage.stage.phase(stage.node) == "waiting", LONG)
    waited_until = time.monotonic() + WAITED_SECONDS
    while time.monotonic() < waited_until:
        assert stage.modes() == [(False, False)] * GPUS
        time.sleep(0.5)
    stage.see("why", "nodes", "pods")
    status = stage.stage.status(stage.node)
    assert status is not None
    assert status.pods == (f"default/{holder.name}",)
    holder.check()
    assert stage.resets() == [0] * GPUS
    for version in stage.versions(since):
        assert not version["spec"].get("unschedulable")
        assert keys.MIG_PERMIT not in version["metadata"]["annotations"]


def goes_on_when_it_has_ended(stage: ModeStage, holder: MigHolderPod, since: str) -> None:
    """Slot, cordon, a reset of each of the four GPUs, the instances, and the node is open."""
    ended = stage.end_program(holder)
    stage.says("The program of the pod on GPU 1 ends. Now the node gets a slot.")
    stage.see("pods")
    follow(stage, ALLOCATABLE)
    stage.says("The node offers 28 instances and four GPUs.")
    stage.see("why", "nodes", "coordinator", "agent")

    changed = [gpu in DIVIDED for gpu in range(GPUS)]
    assert stage.modes() == [(on, on) for on in changed]
    assert stage.resets() == [int(on) for on in changed]
    assert stage.instances() == [Counter({"1g.5gb": 7} if on else {}) for on in changed]
    registered = handed_out.registered(stage.machine)
    assert registered[GPU] == {
        uuid for uuid, on in zip(stage.uuids, changed, strict=True) if not on
    }
    assert len(registered[SMALL]) == ALLOCATABLE[SMALL]
    check_order(stage.versions(since), ended)


def goes_off_when_its_pod_has_ended(stage: ModeStage) -> None:
    """A pod has one of the instances; the way back waits for it as well."""
    holder = MigHolderPod.start(stage.stage.there, stage.machine, "inference", SMALL)
    stage.says(
        "A pod uses one of the instances. The admin desires MIG off on all GPUs. The change waits "
        "for that pod."
    )
    stage.see("pods")
    since = stage.stage.there.cluster.resource_version()
    stage.annotate(f"{keys.MIG_LAYOUT}=all-disabled")
    until(lambda: stage.stage.phase(stage.node) == "waiting", LONG)
    stage.see("why")
    status = stage.stage.status(stage.node)
    assert status is not None
    assert status.pods == (f"default/{holder.name}",)
    holder.check()

    ended = stage.end_program(holder)
    stage.says("The program of that pod ends.")
    follow(stage, {GPU: GPUS})
    stage.says("The node offers eight GPUs again.")
    stage.see("why", "nodes")

    assert stage.modes() == [(False, False)] * GPUS
    assert stage.resets() == [2 * (gpu in DIVIDED) for gpu in range(GPUS)]
    assert stage.instances() == [Counter()] * GPUS
    assert handed_out.registered(stage.machine)[GPU] == {*stage.uuids}
    check_order(stage.versions(since), ended)


def follow(stage: ModeStage, allocatable: dict[str, int]) -> None:
    """The admin looks on from the cordon to the end of a change, without a call of the driver:
    that would be in the way of a reset."""

    def is_changed() -> bool:
        return stage.stage.is_changed(stage.node, allocatable)

    until(lambda: not stage.stage.is_open(stage.node) or is_changed(), LONG)
    stage.see("nodes", "why")
    until(is_changed, LONG)


def check_order(versions: list[Object], ended: int) -> None:
    """The Node was cordoned once its pod had ended, then the device plugin was paused, then the
    change was permitted; at the end all three were undone."""
    begun = [number for number, it in enumerate(versions) if it["spec"].get("unschedulable")]
    assert begun
    assert int(versions[begun[0]]["metadata"]["resourceVersion"]) > ended
    seen: dict[tuple[str, str], None] = {}
    for it in versions[begun[0] : begun[-1] + 1]:
        permit = mig_permit_annotation.decode(it["metadata"]["annotations"][keys.MIG_PERMIT])
        assert permit is not None
        seen[permit.phase, it["metadata"]["labels"][DEPLOYED]] = None
    assert list(seen) == [
        (PermitPhase.CORDONED, "true"),
        (PermitPhase.CORDONED, PAUSED),
        (PermitPhase.PROCEED, PAUSED),
        (PermitPhase.PROCEED, "true"),
    ]
    last = versions[-1]
    assert not last["spec"].get("unschedulable")
    assert last["metadata"]["labels"][DEPLOYED] == "true"
    assert keys.MIG_PERMIT not in last["metadata"]["annotations"]


def check_all_work(stage: ModeStage) -> None:
    """A program can use every GPU that is free, those that were divided too."""
    free = GPUS - 1
    holder = MigHolderPod.start(stage.stage.there, stage.machine, "all", GPU, free)
    assert holder.devices == {*stage.uuids} - {stage.uuids[SPARED]}
    stage.end_program(holder)
