# SPDX-License-Identifier: Apache-2.0
"""Who holds what on simulated machines, through the kubelet's socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.pods.kubelet_pods import KEEP_SECONDS, KubeletPods
from api.mig_resources import MigStrategy
from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot
from exporters.device_user_names import Claim, ContainerUsers
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.node_view import GpuAllocation
from kubelet.podresources.allocation_model import PodDevices, ResourceDevices
from kubelet.podresources.podresources_client import PodResources
from labelers.groups.sharing import NOTHING_SHARED, SharedResource, Sharing, SharingStrategy
from simulator.simulation import Simulation
from tests import build
from tests.agent.agent_process import SOON
from tests.kubelet_nodes.cases import FirstOffered, claim, container, pod
from tests.kubelet_nodes.hardware import Hardware
from tests.kubelet_nodes.node import Node
from tests.kubelet_nodes.offer import GPU

SHARED = Sharing(
    strategy=SharingStrategy.TIME_SLICING,
    resources=(SharedResource(name=GPU, replicas=4, renamed=True),),
)


class Kubelet:
    """The agent's client of a kubelet, whose patience may be changed at any time."""

    def __init__(self, socket: Path) -> None:
        self.deadline_seconds = SOON
        self._socket = socket

    def list(self) -> tuple[PodDevices, ...]:
        """See :class:`PodResources`."""
        return self._client.list()

    def allocatable(self) -> tuple[ResourceDevices, ...]:
        """See :class:`PodResources`."""
        return self._client.allocatable()

    @property
    def _client(self) -> PodResources:
        return PodResources(self._socket, deadline_seconds=self.deadline_seconds)


class Scene:
    """A kubelet over a machine, and what the agent makes of its answers."""

    def __init__(self, machine: str, folder: Path, strategy: MigStrategy, sharing: Sharing) -> None:
        simulation = Simulation.create(machine, folder / "machine")
        snapshot = Hardware(simulation, "node-a").news()
        assert snapshot is not None
        self.snapshot: NodeSnapshot = snapshot
        self.node = Node(
            "node-a",
            simulation,
            FirstOffered(),
            folder / "sockets",
            strategy=strategy,
            sharing=sharing,
        )
        self.shown: ContainerUsers = {}
        own = AgentMetrics("0", lambda: 0.0)
        self.kubelet = Kubelet(self.node.server.path)
        self.pods = KubeletPods(
            self.kubelet,
            node="node-a",
            snapshot=lambda: self.snapshot,
            update_metrics=lambda change: change(own),
            show=self._show,
        )

    def users(self, now: float = 0.0) -> dict[GpuPart, list[str]]:
        """GPU or GPU instance to the pods, after one more question."""
        self.pods.ask(now)
        return {entity: [each.pod for each in held] for entity, held in self.shown.items()}

    def _show(self, allocation: GpuAllocation | None) -> None:
        self.shown = {} if allocation is None else allocation.users


@contextmanager
def scene(
    machine: str,
    folder: Path,
    *,
    strategy: MigStrategy = MigStrategy.NONE,
    sharing: Sharing = NOTHING_SHARED,
) -> Iterator[Scene]:
    made = Scene(machine, folder, strategy, sharing)
    made.node.server.start()
    try:
        yield made
    finally:
        made.node.server.stop()


def test_whole_gpus(tmp_path: Path) -> None:
    with scene("dgx-a100", tmp_path) as there:
        there.node.admit(pod("first", container("a", 2), container("b", 1)))
        there.node.admit(pod("second"))

        found = there.users()

    assert len(found) == 4
    assert sorted(found.values()) == [["first"], ["first"], ["first"], ["second"]]
    assert found.keys() <= {GpuPart(gpu.bus_id) for gpu in there.snapshot.gpus}


@pytest.mark.parametrize(
    ("machine", "strategy"),
    [
        ("hgx-h100-mig-mixed", MigStrategy.MIXED),
        ("dgx-a100-mig-single", MigStrategy.SINGLE),
    ],
)
def test_every_mig_device_of_a_machine(machine: str, strategy: MigStrategy, tmp_path: Path) -> None:
    """Each is given to a pod named after it; whole GPUs beside them are given too."""
    with scene(machine, tmp_path, strategy=strategy) as there:
        for resource, devices in there.node.devices.offer.items():
            for at in range(len(devices)):
                there.node.admit(pod(f"{resource.partition('/')[2]}-{at}", resource=resource))
        found = there.users()

        given = {
            each.name: device.id
            for each in there.node.devices.pods.values()
            for devices in each.containers[0].given.values()
            for device in devices
        }
    entities: dict[str, GpuPart] = {}
    for gpu in there.snapshot.gpus:
        entities[gpu.uuid or ""] = GpuPart(gpu.bus_id)
        entities |= {
            part.uuid: GpuPart(gpu.bus_id, part.gpu_instance_id) for part in gpu.mig_devices
        }
    assert found == {entities[device]: [name] for name, device in given.items()}
    assert any(instance is not None for _, instance in found)


def test_shares_of_a_gpu(tmp_path: Path) -> None:
    """Five pods on two GPUs."""
    with scene("a30-pair", tmp_path, sharing=SHARED) as there:
        for name in "edcba":
            there.node.admit(pod(name, resource=f"{GPU}.shared"))

        found = there.users()

    assert sorted(name for names in found.values() for name in names) == [*"abcde"]
    assert sorted(map(len, found.values())) == [2, 3]
    for entity, held in there.shown.items():
        assert found[entity] == sorted(found[entity])
        assert len({each.share for each in held}) == len(held)
        assert all(each.share is not None and each.share.isdigit() for each in held)


def test_devices_of_claims(tmp_path: Path) -> None:
    """A GPU and a MIG device, by the names that NVIDIA's driver gives them."""
    with scene("dgx-a100-mig-mixed", tmp_path) as there:
        whole = next(gpu for gpu in there.snapshot.gpus if not gpu.mig_devices)
        cut = next(gpu for gpu in there.snapshot.gpus if gpu.mig_devices)
        part = cut.mig_devices[0]
        assert part.placement is not None
        profile = part.profile.replace(".", "").replace("+", "-")
        names = (
            f"gpu-{build.nvidia(whole).minor}",
            f"gpu-{build.nvidia(cut).minor}-mig-{profile}-19-{part.placement[0]}",
        )
        job = pod("job", container("main", 0))
        job["spec"]["containers"][0]["resources"] = {"claims": [{"name": "mine"}]}
        there.node.admit(job, {"mine": claim("two", *names)})

        there.pods.ask(0.0)

    plain = {"namespace": "default", "name": "two", "driver": "gpu.nvidia.com", "pool": "node-a"}
    assert {entity: [each.claim for each in held] for entity, held in there.shown.items()} == {
        GpuPart(whole.bus_id): [Claim(**plain, device=names[0])],
        GpuPart(cut.bus_id, part.gpu_instance_id): [
            Claim(**plain, device=names[1], mig_profile=part.profile, mig_uuid=part.uuid)
        ],
    }


def test_a_kubelet_that_restarts_or_hangs_takes_nothing_away_for_a_while(tmp_path: Path) -> None:
    with scene("a30-pair", tmp_path) as there:
        there.node.admit(pod("job"))
        before = there.users(100.0)
        there.node.server.stop()
        down = there.users(105.0)
        there.node.server.start()
        there.node.server.delay_seconds = 2 * SOON
        there.kubelet.deadline_seconds = 0.2
        hung = there.users(110.0)
        gone = there.users(101.0 + KEEP_SECONDS)
        there.node.server.stop()
        there.node.server.delay_seconds = 0.0
        there.kubelet.deadline_seconds = SOON
        there.node.server.start()
        again = there.users(106.0 + KEEP_SECONDS)

    assert list(before.values()) == [["job"]]
    assert before == down == hung == again
    assert gone == {}


def test_a_pod_that_is_gone_holds_nothing_at_the_next_look(tmp_path: Path) -> None:
    with scene("a30-pair", tmp_path) as there:
        there.node.admit(pod("job"))
        before = there.users()
        there.node.remove("job")

        assert (len(before), there.users()) == (1, {})
