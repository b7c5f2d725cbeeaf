# SPDX-License-Identifier: Apache-2.0
"""Pods that share GPUs: from the driver's processes, cgroups and the kubelet to what is served.

Parts are real but for the API server: pynvml over a simulated machine, a kubelet's socket, and
files as /proc has them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pynvml as nv
import pytest

from agent.metrics.latest_metrics import LatestMetrics
from agent.pods.known_pods import KnownPod
from agent.pods.kubelet_pods import KubeletPods
from agent.processes.gpu_processes import GpuProcesses
from discovery.sample import ReadingGroup
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.gpuscape.agent_metrics import AgentMetrics
from kubelet.allocated_devices import NodeAllocation
from kubelet.podresources.podresources_client import PodResources
from simulator.simulation import Return, Simulation
from tests import exposition
from tests.agent.pods.test_pods_of_a_kubelet import SHARED
from tests.discovery.sampling import Sampler, sampler
from tests.kubelet_nodes.cases import FirstOffered, pod
from tests.kubelet_nodes.hardware import Hardware
from tests.kubelet_nodes.node import Node
from tests.kubelet_nodes.offer import GPU

PODS = ("a", "b", "c", "d")
UID = {name: str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in PODS}
COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
UTIL, USED, CLOCK = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_SM_CLOCK"


@dataclass
class Scene:
    """Two GPUs, each shared by two of the pods."""

    taken: Sampler
    latest: LatestMetrics
    processes: GpuProcesses
    root: Path
    on: dict[str, list[str]]
    """Bus id to the pods that share the GPU."""

    def run(self, name: str, pid: int, bus_id: str, *, percent: int, memory_mib: int) -> None:
        """A process of a pod on a GPU."""
        folder = self.root / "proc" / str(pid)
        folder.mkdir(parents=True)
        slices = UID[name].replace("-", "_")
        text = f"0::/kubepods.slice/kubepods-pod{slices}.slice/cri-containerd-1.scope\n"
        (folder / "cgroup").write_text(text)
        self.taken.simulation.add_process(bus_id, pid, percent=percent, memory_mib=memory_mib)

    def served(self) -> dict[tuple[str, str, str], str]:
        """Family, bus id and pod to the value, after two samples."""
        for _ in range(2):
            samples = tuple(self.taken.sample(gpu, (ReadingGroup.PROCESSES,)) for gpu in self.on)
        self.latest.show_samples(samples, of_pods=self.processes.of_pods(samples))
        body = self.latest.metrics().body.plain
        return {
            (name, dict(labels)["pci_bus_id"][4:].lower(), dict(labels).get("pod", "")): value
            for name in (UTIL, USED, CLOCK)
            for (_, labels), value in exposition.parse(body)[name].series.items()
        }


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    own = folder / "root/proc" / str(os.getpid())
    (own / "ns").mkdir(parents=True)
    (own / "ns/pid").symlink_to("pid:[4026531836]")
    (folder / "root/proc/self").symlink_to(own.name)
    latest = LatestMetrics(
        SeriesIdentity(hostname="node-a", shares=True), AgentMetrics("0", lambda: 0.0)
    )
    on: dict[str, list[str]] = {}

    def machine() -> Simulation:
        simulation = Simulation.create("a30-pair", folder / "machine")
        on.update(shared(simulation, latest, folder / "kubelet"))
        return simulation

    with sampler(machine) as taken:
        yield Scene(taken, latest, GpuProcesses(folder / "root"), folder / "root", on)


def shared(simulation: Simulation, latest: LatestMetrics, folder: Path) -> dict[str, list[str]]:
    """Bus id to the pods that a kubelet has just given shares of the GPU; they are shown."""
    snapshot = Hardware(simulation, "node-a").news()
    assert snapshot is not None
    latest.show_snapshot(snapshot, 0.0)
    node = Node("node-a", simulation, FirstOffered(), folder, sharing=SHARED)
    given: list[NodeAllocation] = []
    node.server.start()
    try:
        for name in PODS:
            node.admit(pod(name, resource=f"{GPU}.shared"))
        pods = KubeletPods(
            PodResources(node.server.path, deadline_seconds=10.0),
            node="node-a",
            snapshot=lambda: snapshot,
            update_metrics=latest.refresh,
            show=latest.show_allocation,
            allocated=lambda _snapshot, allocation: given.append(allocation),
            about=lambda namespace, name: KnownPod(
                namespace=namespace, name=name, uid=UID[name], ended=False
            ),
        )
        pods.ask(0.0)
    finally:
        node.server.stop()
    on: dict[str, list[str]] = {}
    for user in given[0].containers:
        for device in user.devices:
            on.setdefault(device.part.bus_id, []).append(user.pod)
    return on


def test_a_pod_shows_what_its_processes_have_and_idle_ones_0(tmp_path: Path) -> None:
    with scene(tmp_path) as there:
        (first, (one, other)), (second, _) = there.on.items()
        there.run(one, 7001, first, percent=30, memory_mib=500)
        there.run(one, 7002, first, percent=20, memory_mib=200)
        there.run(other, 7003, first, percent=0, memory_mib=100)
        found = there.served()

    assert {pod: found[UTIL, first, pod] for pod in ("", one, other)} == {
        "": "50",
        one: "50",
        other: "0",
    }
    assert (found[USED, first, one], found[USED, first, other]) == ("700", "100")
    assert int(found[USED, first, ""]) >= 800
    assert (CLOCK, first, "") not in found
    assert {pod: found[UTIL, second, pod] for pod in ("", *there.on[second])} == dict.fromkeys(
        ("", *there.on[second]), "0"
    )


def test_idle_pods_on_a_gpu_where_nothing_runs_show_0(tmp_path: Path) -> None:
    """The driver has nothing to tell of how busy they are: it lists those alone that did work."""
    with scene(tmp_path) as there:
        (first, pods), *_ = there.on.items()
        for pid, name in enumerate(pods, 7001):
            there.run(name, pid, first, percent=0, memory_mib=100)
        found = there.served()

    assert [found[UTIL, first, name] for name in ("", *pods)] == ["0", "0", "0"]
    assert [found[USED, first, name] for name in pods] == ["100", "100"]


@pytest.mark.parametrize(
    "code", [nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_NO_PERMISSION, nv.NVML_ERROR_UNKNOWN]
)
def test_where_the_driver_tells_no_processes_no_pod_has_a_value(tmp_path: Path, code: int) -> None:
    with scene(tmp_path) as there:
        (first, (one, _)), *_ = there.on.items()
        there.run(one, 7001, first, percent=30, memory_mib=500)
        there.taken.simulation.fault(Return(code=code), COMPUTE)
        found = there.served()

    assert [pod for name, bus_id, pod in found if (name, bus_id) == (UTIL, first)] == [""]


def test_without_the_host_s_pids_no_pod_has_a_value(tmp_path: Path) -> None:
    with scene(tmp_path) as there:
        (first, (one, _)), *_ = there.on.items()
        there.run(one, 7001, first, percent=30, memory_mib=500)
        (there.root / "proc/self").unlink()
        found = there.served()

    assert {pod for name, _, pod in found if name == UTIL} == {""}
    assert {pod for name, _, pod in found if name == CLOCK} == set(PODS)
