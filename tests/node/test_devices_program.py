# SPDX-License-Identifier: Apache-2.0
"""``gpuscape devices`` and real kubelets: what is predicted is what containers get.

The judge is what the device manager handed out: its checkpoint, and the environment in the
containers. The predictions are those of the scheduler's code, from the links that the agent
publishes.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import pytest

from discovery.model import NodeSnapshot
from labelers.annotations import topology_of
from placement.exact_choice import ExactChoice
from placement.shape import shape
from tests.agent.agent_process import until
from tests.controlplane.versions import VERSIONS
from tests.node import handed_out, numa_nodes
from tests.node.devices_program import UNREGISTERED, DevicesProgram
from tests.node.gpu_cluster import PODS
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.handed_out import RunningContainer
from tests.node.real_cluster import RealCluster
from tests.node.real_node import SOON, RealNode
from tests.observed import observed
from tests.reused import Reused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

GPUS = 8
ALL = (1 << GPUS) - 1
NUMA = {"topologyManagerPolicy": "single-numa-node"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A node with the GPUs of a DGX-1, which the program hands out."""

    cluster: RealCluster
    node: RealNode
    devices: DevicesProgram
    snapshot: NodeSnapshot
    numbers: Iterator[int]

    def uuids(self, mask: int) -> frozenset[str]:
        """Of the GPUs of a mask."""
        gpus = enumerate(self.snapshot.gpus)
        return frozenset(gpu.uuid or "" for place, gpu in gpus if mask >> place & 1)

    def best(self, available: int, size: int) -> int:
        """The GPUs that are predicted."""
        return ExactChoice(shape(topology_of(self.snapshot))).best(available, size)

    def come(self, size: int) -> RunningContainer:
        """A new pod with so many GPUs, once it runs."""
        name = f"pod-{next(self.numbers)}"
        self.cluster.plane.demand("POST", PODS, gpu_pod(name, gpus("only", size)))
        until(lambda: name in self.running(), SOON)
        return self.running()[name]

    def running(self) -> dict[str, RunningContainer]:
        """The containers that run, by the name of their pod."""
        return {container.pod: container for container in handed_out.running(self.node)}

    def held(self, container: RunningContainer) -> frozenset[str]:
        """What the device manager has handed out to a container's pod."""
        (grant,) = (g for g in handed_out.grants(self.node) if g.pod_uid == container.pod_uid)
        return grant.ids

    def leave(self, *containers: RunningContainer) -> None:
        """Remove pods, and wait for their end."""
        for container in containers:
            self.cluster.plane.demand("DELETE", f"{PODS}/{container.pod}?gracePeriodSeconds=0")
        until(lambda: not self.running(), SOON)

    def offers(self, healthy: int = GPUS, of: int = GPUS) -> None:
        """Wait until the Node offers so many."""
        until(lambda: self.devices.gpus() == (of, healthy), SOON)


@pytest.fixture(scope="module", params=VERSIONS)
def scenes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reused[Scene]]:
    """Starts the one that :func:`there` lends."""

    @contextlib.contextmanager
    def started() -> Iterator[Scene]:
        folder = tmp_path_factory.mktemp("devices")
        with RealCluster.start(folder, nodes=1, minor=request.param) as cluster:
            (node,) = cluster.nodes.values()
            scene = Scene(
                cluster=cluster,
                node=node,
                devices=DevicesProgram(node=node),
                snapshot=observed("dgx1-v100").snapshot,
                numbers=count(),
            )
            scene.devices.write(scene.snapshot)
            scene.devices.start()
            yield scene

    with contextlib.closing(Reused(started)) as reused:
        yield reused


@pytest.fixture
def there(request: pytest.FixtureRequest, scenes: Reused[Scene]) -> Iterator[Scene]:
    """A node whose kubelet offers all GPUs, and no pod."""
    with scenes.lent(request.session) as scene:
        scene.offers()
        yield scene


def test_each_pod_gets_the_gpus_that_are_predicted(there: Scene) -> None:
    assert handed_out.registered(there.node) == {handed_out.GPU: there.uuids(ALL)}
    free, pods = ALL, []
    for size in (2, 1, 3, 2):
        predicted = there.best(free, size)
        pods.append(there.come(size))
        assert pods[-1].visible == there.uuids(predicted) == there.held(pods[-1])
        free &= ~predicted
    assert not free
    there.leave(*pods)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_of_the_program_leaves_pods_alone(there: Scene, how: signal.Signals) -> None:
    pod, registrations = there.come(2), there.devices.registrations()
    assert there.devices.stop(how) == (0 if how is signal.SIGTERM else -how)
    assert bool(there.devices.sockets()) == (how is signal.SIGKILL)
    there.offers(0)
    assert there.running() == {pod.pod: pod}
    there.devices.start()
    there.offers()
    assert there.running() == {pod.pod: pod}
    assert there.devices.registrations() == registrations + 1
    assert len(there.devices.sockets()) == 1
    later = there.come(2)
    assert later.visible == there.uuids(there.best(ALL & ~there.best(ALL, 2), 2))
    there.leave(pod, later)


def test_a_new_kubelet_gets_the_gpus_again(there: Scene) -> None:
    pod, registrations = there.come(2), there.devices.registrations()
    there.node.stop("kubelet", signal.SIGKILL)
    there.node.start_kubelet()
    until(lambda: there.devices.registrations() > registrations, SOON)
    there.offers()
    assert len(there.devices.sockets()) == 1
    assert there.running() == {pod.pod: pod}
    later = there.come(2)
    assert later.visible == there.uuids(there.best(ALL & ~there.best(ALL, 2), 2))
    assert there.running() == {pod.pod: pod, later.pod: later}
    there.leave(pod, later)


def test_a_kubelet_with_a_numa_policy_starts_though_a_held_gpu_has_gone(there: Scene) -> None:
    """Such a kubelet crashes at every start where a held device is missing from the list."""
    pod, registrations = there.come(2), there.devices.registrations()
    gone = there.best(ALL, 2)
    left = [gpu for place, gpu in enumerate(there.snapshot.gpus) if not gone >> place & 1]
    there.devices.stop()
    there.devices.write(replace(there.snapshot, gpus=tuple(left)))
    there.node.stop("kubelet")
    numa_nodes.show(there.node)
    there.node.start_kubelet(NUMA)
    there.devices.start()
    there.offers(GPUS - 2)
    assert there.running() == {pod.pod: pod}
    there.node.stop("kubelet")
    there.node.start_kubelet(NUMA)
    until(lambda: there.devices.registrations() == registrations + 2, SOON)
    there.offers(GPUS - 2)
    assert there.running() == {pod.pod: pod}
    there.leave(pod)
    there.devices.write(there.snapshot)
    there.node.stop("kubelet")
    there.node.start_kubelet()


def test_a_file_of_another_boot_offers_nothing(there: Scene) -> None:
    there.devices.stop()
    there.devices.write(there.snapshot, boot_id="00000000-0000-4000-8000-000000000000")
    missed = len(there.devices.lines("file of devices not taken over"))
    there.devices.start()
    until(lambda: len(there.devices.lines("file of devices not taken over")) > missed, SOON)
    there.offers(0)
    assert not there.devices.sockets()
    there.devices.write(there.snapshot)
    there.offers()


def test_a_second_program_waits_until_the_first_has_ended(there: Scene) -> None:
    """Two on one node answer for the same devices: the kubelet would ask the last one alone."""
    second = DevicesProgram(node=there.node, name="devices-2")
    second.start()
    until(lambda: bool(second.lines(UNREGISTERED)), SOON)
    assert second.registrations() == 0
    assert there.devices.gpus() == (GPUS, GPUS)
    there.devices.stop()
    until(lambda: second.registrations() == 1, SOON)
    there.offers()
    second.stop()
    there.devices.start()
