# SPDX-License-Identifier: Apache-2.0
"""A MIG layout changed next to pods that hold instances, on a real node with NVIDIA's plugin.

What an admin does: ``gpuscape mig apply`` on the node, then the device plugin's pod is restarted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

import psutil
from msgspec.structs import replace

from api.mig_resources import GPU_RESOURCE, MigStrategy, mig_resource
from cli.failures import REFUSED
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription
from tests.agent.agent_process import until
from tests.node import attribution, handed_out
from tests.node.attribution import Attribution
from tests.node.gpu_cluster import GpuCluster
from tests.node.mig_holder import MigHolderPod
from tests.node.node_mig import HOST, NodeMig
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.real_node import SOON, RealNode

DEVICE_SPECS: Final[Mapping[str, Any]] = {
    "flags": {"nvidiaDevRoot": str(HOST), "plugin": {"passDeviceSpecs": True}}
}
"""The plugin's settings with which the kubelet makes device nodes in containers."""
PLUGIN_OLD: Final = "restart its pod, which makes the list when it starts"


@dataclass(kw_only=True)
class MigChangeTrial:
    """One node, its pods with MIG devices, and the commands of its admin."""

    there: GpuCluster
    node: RealNode
    mig: NodeMig
    strategy: MigStrategy
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the plugin, which runs with them when this is made."""
    labelled: bool = False
    """The agent labels the node by the same strategy."""
    promised: Mapping[str, int] = field(default_factory=dict)
    """What the node will offer, by the last plan."""
    pods: list[MigHolderPod] = field(default_factory=list)

    @property
    def passes_nodes(self) -> bool:
        """The kubelet makes device nodes in containers."""
        return self.settings == DEVICE_SPECS

    def hold(self, name: str, resource: str, number: int = 1) -> MigHolderPod:
        """A pod that holds so many, with the device nodes that belong to them and no others."""
        until(lambda: self._offered().get(resource, 0) >= number, SOON)
        pod = MigHolderPod.start(self.there, self.node, name, resource, number)
        self.pods.append(pod)
        (process,) = [it.process for it in handed_out.running(self.node) if it.pod == name]
        seen = self.mig.in_containers(process)
        passed = pod.devices if self.passes_nodes else ()
        assert seen == {cap for device in passed for cap in self.mig.nodes_of(device)}
        return pod

    def held(self, gpu: int) -> dict[str, int]:
        """What the pods have on one GPU, as a layout names it: profile and place."""
        places = [place for place in self._held() if place[0] == gpu]
        return {f"{profile}@{start}": 1 for _, profile, start in places}

    def apply(self, gpu: int, layout: Mapping[str, int]) -> None:
        """Bring one GPU to a layout; no pod loses anything, and the plugin's list is old then."""
        before, kept = self.mig.births(), self._held_births()
        done = self.mig.apply({str(gpu): layout}, "--strategy", self.strategy.value)
        assert done.code == 0, done.output
        assert PLUGIN_OLD in done.output
        self.promised = promised(done.output)
        after = self.mig.births()
        assert kept <= before & after
        assert len(after - before) > 0
        assert len(before - after) > 0
        self.check()

    def refuse(self, gpu: int, layout: Mapping[str, int], *pods: str) -> None:
        """It is refused, these pods are named with their programs, and nothing has changed."""
        before = self.mig.births()
        done = self.mig.apply({str(gpu): layout}, "--strategy", self.strategy.value)
        assert done.code == REFUSED, done.output
        named = [line.partition("in the way: ")[2] for line in done.output.splitlines()]
        assert sorted(it for it in named if it.startswith("pod ")) == [
            f"pod default/{name}" for name in sorted(pods)
        ]
        programs = [it.split() for it in named if it.startswith("process ")]
        assert [it[-1] for it in programs] == ["mig-holder"] * len(pods)
        assert self.mig.births() == before
        self.check()

    def check(self) -> None:
        """Every pod has what it had."""
        for pod in self.pods:
            pod.check()

    def restart_plugin(self) -> None:
        """As another pod; what the node offers is then what the plan has said."""
        name = self.node.name
        self.there.plugins[name].stop()
        self.there.plugins[name] = NvidiaPlugin.start(
            self.there.cluster.plane, self.node, strategy=self.strategy, settings=self.settings
        )
        until(lambda: self._offered() == self.promised, SOON)

    def settle(self) -> None:
        """Wait until metrics and Lease of the node's agent show what is true, and its labels."""
        attribution.settle([Attribution(self.there, self.node.name)])
        if not self.labelled:
            return
        wanted = {f"{name}.count": str(count) for name, count in self._counted().items()}
        until(lambda: wanted.items() <= self.node.object()["metadata"]["labels"].items(), SOON)

    def outlast(self, gpu: int, layout: Mapping[str, int], pod: MigHolderPod) -> None:
        """A command waits for the one pod that is in its way, and goes on when that is deleted; the
        others have what they had all the time."""
        before = self.mig.births()
        with ThreadPoolExecutor(1) as waiting:
            ends = waiting.submit(self.mig.apply, {str(gpu): layout}, "--wait", f"{SOON:.0f}s")
            until(lambda: ends.done() or any(map(_waits, psutil.Process().children(True))), SOON)
            self.check()
            assert not ends.done(), ends.result().output
            assert self.mig.births() == before
            pod.delete()
            self.pods.remove(pod)
            done = ends.result()
        assert done.code == 0, done.output
        first = next(line for line in done.output.splitlines() if line.startswith("Waiting, "))
        who, program = first.partition("in the way: ")[2].split(", ")
        assert who == f"pod default/{pod.name}"
        assert program.endswith(" mig-holder")
        self.check()

    def end(self) -> None:
        """Delete the pods; nothing holds an instance then, by the driver."""
        for pod in self.pods:
            pod.delete()
        until(lambda: not any(pod.is_there for pod in self.pods), SOON)
        self.pods.clear()
        until(lambda: not self.mig.programs(), SOON)

    def _offered(self) -> dict[str, int]:
        """What pods may ask for; of what is gone, nothing."""
        offered = self.there.plugins[self.node.name].allocatable()
        return {name: count for name, count in offered.items() if count}

    def _counted(self) -> dict[str, int]:
        """The MIG devices that there are, as labels have them."""
        profiles = [profile for _, profile, _ in self.mig.devices().values()]
        if self.strategy is MigStrategy.SINGLE:
            return {GPU_RESOURCE: len(profiles)}
        return dict(Counter(map(mig_resource, profiles)))

    def _held(self) -> list[tuple[int, str, int]]:
        """Index of the GPU, profile and place of each device that a pod has."""
        devices = self.mig.devices()
        return [devices[name] for pod in self.pods for name in pod.devices]

    def _held_births(self) -> frozenset[tuple[str, int, int, int]]:
        held = self._held()
        return frozenset(one for one in self.mig.births() if (one[1], one[0], one[2]) in held)


def _waits(process: psutil.Process) -> bool:
    try:
        return "--wait" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


def promised(output: str) -> dict[str, int]:
    """What ``mig apply`` says that the node will offer."""
    lines = output.partition("Allocatable then:\n")[2].splitlines()
    words = [line.rpartition(": ") for line in takewhile(lambda it: it.startswith("  "), lines)]
    return {name.strip(): int(count) for name, _, count in words}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBesidePods:
    """A change of one GPU on which pods hold instances; what nobody holds there gives way."""

    pods: Sequence[tuple[str, int]]
    """The resource that each asks for, and how many; some of each are on the GPU."""
    gpu: int
    """Its index."""
    new: Mapping[str, int]
    """What is made next to what they hold."""
    new_resource: str
    """By which a pod gets it; nothing else is left of it then."""
    whole: str
    """A profile that takes all of the GPU."""


MIXED_MACHINE: Final = "dgx-a100-mig-mixed"
MIXED_CHANGE: Final = ChangeBesidePods(
    pods=(("nvidia.com/mig-3g.20gb", 1), ("nvidia.com/mig-1g.5gb", 3)),
    gpu=4,
    new={"1g.5gb@0": 1, "1g.5gb@1": 1},
    new_resource="nvidia.com/mig-1g.5gb",
    whole="7g.40gb",
)
"""On that machine. The second pod has one on another GPU: the plugin hands out ``1g.5gb+me`` by
the same name."""
SMALL_CHANGE: Final = ChangeBesidePods(
    pods=(("nvidia.com/mig-3g.20gb", 1),),
    gpu=4,
    new={"1g.10gb@0": 1, "1g.10gb@2": 1},
    new_resource="nvidia.com/mig-1g.10gb",
    whole="7g.40gb",
)
"""On that machine, for a resource that its node did not have."""
SINGLE_CHANGE: Final = ChangeBesidePods(
    pods=((GPU_RESOURCE, 1), (GPU_RESOURCE, 1)),
    gpu=0,
    new={"1g.5gb@5": 1, "1g.5gb@6": 1},
    new_resource=GPU_RESOURCE,
    whole="7g.40gb",
)
"""On :func:`single_machine`."""


def single_machine() -> MachineDescription:
    """One GPU with five instances, and room for two more."""
    machine = load_machine("dgx-a100-mig-single")
    gpu = machine.gpus[0]
    return replace(machine, gpus=(replace(gpu, instances=gpu.instances[:5]),))


def change_beside_pods(trial: MigChangeTrial, change: ChangeBesidePods) -> MigHolderPod:
    """A refusal, the change, the plugin's restart, and a pod that gets what was made; that pod."""
    for number, (resource, devices) in enumerate(change.pods):
        trial.hold(f"holder-{number}", resource, devices)
    old = trial.mig.devices()
    for pod in trial.pods:
        assert change.gpu in {old[name][0] for name in pod.devices}

    trial.refuse(change.gpu, {change.whole: 1}, *[pod.name for pod in trial.pods])
    trial.apply(change.gpu, {**trial.held(change.gpu), **change.new})
    trial.restart_plugin()
    late = trial.hold("late", change.new_resource, len(change.new))

    assert late.devices == {
        name
        for name, (gpu, profile, start) in trial.mig.devices().items()
        if gpu == change.gpu and f"{profile}@{start}" in change.new
    }
    trial.settle()
    trial.check()
    return late
