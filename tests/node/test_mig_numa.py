# SPDX-License-Identifier: Apache-2.0
"""MIG changes and reboots on a node whose kubelet has the policy single-numa-node.

Such a kubelet ends at each start while a pod holds a device that its plugin does not list.
"""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from msgspec.structs import replace

from api.actuator.actuator_client import SOCKET, ask_actuator
from api.actuator.actuator_messages import (
    ApplyRequest,
    ChangeAnswer,
    RequestedInstance,
    RequestedLayout,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome
from api.mig_resources import GPU_RESOURCE, MigStrategy
from cli.failures import REFUSED
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription
from tests.agent.agent_process import GPUSCAPE, until
from tests.controlplane.plane import Object
from tests.node import handed_out, mig_holder, numa_nodes
from tests.node.gpu_cluster import PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.host_plugin import HostPlugin
from tests.node.mig_holder import MigHolderPod
from tests.node.node_doctor import examined
from tests.node.node_gpus import DRIVER
from tests.node.node_mig import MACHINE, NodeMig
from tests.node.real_node import SOON, RealNode

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1800)]

POLICY: Final = {"topologyManagerPolicy": "single-numa-node"}
PANIC: Final = "generateDeviceTopologyHints"
"""Where such a kubelet ends, by its log."""
SMALL: Final = "nvidia.com/mig-1g.10gb"
LARGE: Final = "nvidia.com/mig-3g.40gb"
ACTUATOR: Final = "actuator"
"""The program on the node, and its log."""
LAYOUT: Final = {"all": {"3g.40gb@4": 1, "1g.10gb@0": 1, "1g.10gb@1": 1}}
"""On each GPU; units 2 and 3 stay free."""


def two_gpus() -> MachineDescription:
    """One on each NUMA node. They forget at a reboot that MIG was on."""
    machine = load_machine("hgx-h100")
    return replace(machine, gpus=(machine.gpus[0], machine.gpus[4]))


class NumaNode:
    """The node, its admin's commands, and its device plugin."""

    def __init__(self, there: GpuCluster, strategy: MigStrategy) -> None:
        """Starts nothing."""
        self.there = there
        self.node: RealNode = there.node
        self.gpus = there.gpus[self.node.name]
        self.mig = NodeMig.on(self.gpus)
        self.plugin = HostPlugin(node=self.node, strategy=strategy)

    def pod(self, name: str, resource: str) -> str:
        """An idle pod with one device: no program runs in it that has a context; the device."""
        body = gpu_pod(name, gpus("main", 1, resource=resource))
        uid = self.there.cluster.plane.demand("POST", PODS, body)["metadata"]["uid"]
        until(lambda: self.phase(name) == "Running", SOON)
        (grant,) = [it for it in handed_out.grants(self.node) if it.pod_uid == uid]
        (device,) = grant.ids
        return device

    def object(self, name: str) -> Object | None:
        """A pod; None where it is gone."""
        answer = self.there.cluster.plane.request("GET", f"{PODS}/{name}")
        return answer.body if answer.status == http.client.OK else None

    def phase(self, name: str) -> str:
        """Of a pod."""
        found = self.object(name)
        return "" if found is None else str(found["status"].get("phase", ""))

    def delete(self, name: str, *, by_force: bool = False) -> None:
        """It is gone when this returns; by force also where no kubelet runs."""
        grace = "?gracePeriodSeconds=0" if by_force else ""
        self.there.cluster.plane.demand("DELETE", f"{PODS}/{name}{grace}")
        until(lambda: self.object(name) is None, SOON)

    def restart_plugin(self) -> None:
        """It lists what there is now; the kubelet has the lists when this returns."""
        self.plugin.stop()
        expected = self.plugin.registrations() + self.resources()
        self.plugin.start()
        until(lambda: self.plugin.registrations() >= expected, SOON)

    def restart_kubelet(self) -> None:
        """It lives: the plugin has registered with it, and it starts a pod."""
        self.node.stop("kubelet")
        self.start_kubelet()

    def start_kubelet(self) -> None:
        """As above."""
        expected = self.plugin.registrations() + self.resources()
        self.node.start_kubelet(POLICY)
        until(lambda: self.has_died() or self.plugin.registrations() >= expected, SOON)
        body = gpu_pod("alive", gpus("main", 0))
        self.there.cluster.plane.demand("POST", PODS, body)
        until(lambda: self.has_died() or self.phase("alive") == "Running", SOON)
        assert not self.has_died(), self.kubelet_log()[-4000:]
        self.delete("alive")

    def resources(self) -> int:
        """How many the plugin registers."""
        profiles = {profile for _, profile, _ in self.mig.devices().values()}
        return len(profiles) if self.plugin.strategy is MigStrategy.MIXED else 1

    def has_died(self) -> bool:
        """Whether the kubelet has ended by itself."""
        return self.node.programs.code("kubelet") is not None

    def kubelet_log(self) -> str:
        """All of it."""
        return self.node.programs.log("kubelet").read_text(errors="replace")

    def dies(self) -> None:
        """A kubelet that is started ends, in the place that is known."""
        before = self.kubelet_log().count(PANIC)
        self.node.start_kubelet(POLICY)
        until(self.has_died, SOON)
        assert self.kubelet_log().count(PANIC) > before


@contextlib.contextmanager
def numa_node(folder: Path, strategy: MigStrategy) -> Iterator[NumaNode]:
    """The node; its plugin is not started."""

    def align(node: RealNode) -> None:
        node.stop("kubelet")
        numa_nodes.show(node)
        node.start_kubelet(POLICY)

    with gpu_cluster(folder, two_gpus(), prepare=align) as there:
        yield NumaNode(there, strategy)


def test_the_kubelet_lives_after_each_change_of_ours_and_dies_after_a_wipe(
    tmp_path: Path,
) -> None:
    """The same layout that a wipe makes under a pod is refused by us, with the pod's name. What
    somebody else has done is named, with what to do, and the doctor foretells the end."""
    with numa_node(tmp_path, MigStrategy.MIXED) as on:
        on.node.import_image(mig_holder.image(tmp_path))
        assert on.mig.apply(LAYOUT, "--strategy", "mixed").code == 0
        on.plugin.start()
        on.restart_kubelet()
        device = on.pod("idle", SMALL)
        gpu, _, start = on.mig.devices()[device]
        holder = MigHolderPod.start(on.there, on.node, "holder", LARGE)

        # ours: what the pod holds stays, whether or not anything runs there
        before = on.mig.births()
        refused = on.mig.apply({str(gpu): {"7g.80gb": 1}})
        assert refused.code == REFUSED
        assert "in the way: pod default/idle\n" in refused.output
        answer = ask_for(on, gpu, "7g.80gb", 7)
        assert (answer.outcome, on.mig.births()) == (Outcome.REFUSED, before)
        assert "pod default/idle" in answer.reason
        on.restart_kubelet()
        other = 1 - start
        for layout in ({"2g.20gb@2": 1}, {f"1g.10gb@{other}": 1}):
            held = {f"1g.10gb@{start}": 1, "3g.40gb@4": 1}
            done = on.mig.apply({str(gpu): {**held, **layout}})
            assert done.code == 0, done.output
            on.restart_plugin()
            on.restart_kubelet()
            holder.check()
            assert on.phase("idle") == "Running"
        holder.delete()
        until(lambda: not holder.is_there, SOON)

        assert not {"kubelet-will-die", "held-device-gone"} & examined(on.there).causes.keys()

        # a wipe: nothing runs on the instance, so the driver lets it go
        bus_id = list(on.gpus.simulation.state.gpus)[gpu]
        assert on.mig.wipe_and_permute(bus_id, {"7g.80gb": 1}) == "True\n"
        assert device not in on.mig.devices()
        on.restart_plugin()
        foretold = examined(on.there).causes["kubelet-will-die"]
        assert foretold == f"default/idle holds {device}, which no longer exists"
        on.node.stop("kubelet")
        on.dies()
        on.dies()
        named = on.mig.run("restore")
        assert f"pod default/idle holds {device}, which is gone: delete the pod" in named.output
        on.delete("idle", by_force=True)
        on.start_kubelet()


def reboot(on: NumaNode) -> None:
    """Nothing runs on the node then but containerd and the driver, which has lost what no GPU
    keeps; the kubelet is to come, and the API server after it."""
    on.there.cluster.plane.stop_apiserver()
    on.node.stop("kubelet")
    on.plugin.stop()
    on.node.stop("containerd")
    for process in container_processes(on):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    on.node.programs.stop(DRIVER)
    on.gpus.simulation.reboot()
    for node in (on.gpus.simulation.host_root / "dev/nvidia-caps").iterdir():
        node.unlink()
    on.gpus.start()
    on.node.start_containerd()


def container_processes(on: NumaNode) -> Iterator[psutil.Process]:
    """What containerd leaves running when it ends, and who looks after it."""
    for process in psutil.Process(on.node.first_process).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name().startswith("containerd-shim"):
                yield from (*process.children(recursive=True), process)


def boot(on: NumaNode) -> None:
    """The plugin starts, then the kubelet, which has its devices before it learns of any pod."""
    registered = on.plugin.registrations()
    on.plugin.start()
    on.node.start_kubelet(POLICY)
    until(lambda: on.plugin.registrations() > registered, SOON)
    on.there.cluster.plane.start_apiserver()


def comes_back(on: NumaNode, device: str) -> None:
    """The bound pod runs, on the device that it had."""
    until(lambda: on.has_died() or "bound" in running(on), SOON)
    assert not on.has_died(), on.kubelet_log()[-4000:]
    assert running(on)["bound"] == {device}
    on.restart_kubelet()


def running(on: NumaNode) -> dict[str, frozenset[str]]:
    """Pod to the devices that its environment names."""
    return {it.pod: it.visible for it in handed_out.running(on.node)}


def start_actuator(on: NumaNode) -> Path:
    """Its socket; what it does at its start has ended when this returns."""
    on.node.programs.start(ACTUATOR, [GPUSCAPE, "actuator", *MACHINE])
    log = on.node.programs.log(ACTUATOR)
    on.node.programs.wait(ACTUATOR, lambda: "actuator started" in log.read_text(), seconds=SOON)
    socket = Path(f"/proc/{on.node.first_process}/root{SOCKET}")

    def is_idle() -> bool:
        state = ask_actuator(socket, StateRequest())
        return isinstance(state, StateAnswer) and state.running is None

    until(is_idle, SOON)
    return socket


def ask_for(on: NumaNode, gpu: int, profile: str, slices: int) -> ChangeAnswer:
    """The actuator's answer, which alone sees who is in the way: nobody has made a plan before."""
    asked = RequestedLayout(
        mig=True, instances=(RequestedInstance(profile=profile, compute=(slices,)),)
    )
    wanted = {on.mig.uuids()[gpu]: asked}
    request = ApplyRequest(change="whole-gpu", origin="a test", desired=wanted)
    answer = ask_actuator(start_actuator(on), request, timeout_seconds=SOON)
    on.node.programs.stop(ACTUATOR)
    assert isinstance(answer, ChangeAnswer), answer
    return answer


@pytest.mark.parametrize("first", ["actuator", "plugin"])
def test_a_reboot_with_a_bound_pod(tmp_path: Path, first: str) -> None:
    """Where the layout is back before the plugin looks, nothing is noticed: the same devices, and
    the pod comes back. Where the plugin is first, it lists whole GPUs, and the kubelet ends over
    and over; the layout brought back and the plugin restarted end that, and no pod is lost."""
    with numa_node(tmp_path, MigStrategy.SINGLE) as on:
        done = on.mig.apply({"all": {"3g.40gb": 2}}, "--strategy", "single")
        assert done.code == 0, done.output
        on.plugin.start()
        on.restart_kubelet()
        device = on.pod("bound", GPU_RESOURCE)
        devices = on.mig.devices()
        reboot(on)
        assert on.mig.devices() == {}

        if first == "plugin":
            boot(on)
            until(on.has_died, SOON)
            on.dies()
        start_actuator(on)
        assert on.mig.devices() == devices
        named = on.node.programs.log(ACTUATOR).read_text()
        assert ("device plugin's list stale" in named) == (first == "plugin")
        if first == "plugin":
            on.there.cluster.plane.stop_apiserver()
            on.plugin.stop()
        boot(on)
        comes_back(on, device)
