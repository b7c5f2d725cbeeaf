# SPDX-License-Identifier: Apache-2.0
"""The container of ``deploy/actuator`` on a real node, over the driver's library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from msgspec.structs import replace

from api import names
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
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MachineDescription
from tests.agent.agent_process import until
from tests.controlplane.plane import Object
from tests.node.container_agents import CREDENTIALS
from tests.node.gpu_cluster import GpuCluster, gpu_cluster
from tests.node.mig_stage import kustomization
from tests.node.node_mig import NodeMig
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM: Final = "gpuscape actuator"


def one_gpu() -> MachineDescription:
    machine = load_machine("hgx-h100")
    return replace(machine, gpus=machine.gpus[:1])


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    with gpu_cluster(tmp_path_factory.mktemp("actuator"), one_gpu()) as found:
        yield found


class ActuatorPod:
    """The one pod there."""

    def __init__(self, there: GpuCluster) -> None:
        self.there = there
        self.node = there.node

    def find(self) -> Object | None:
        """While it is Ready, and no other one is there."""
        pods = self.there.cluster.pods(self.node.name)
        ready = [
            pod
            for pod in pods
            if len(statuses := pod["status"].get("containerStatuses", ())) == 2
            and all(it["ready"] for it in statuses)
        ]
        return ready[0] if len(pods) == len(ready) == 1 else None

    def settled(self, other_than: str = "") -> Object:
        """When it runs; ``other_than``: UID of one that ends."""
        found: list[Object] = []

        def settles() -> bool:
            pod = self.find()
            found[:] = [] if pod is None or pod["metadata"]["uid"] == other_than else [pod]
            return found != []

        until(settles, SOON)
        return found[0]

    @property
    def process(self) -> psutil.Process:
        """The actuator."""
        return self.node.processes(PROGRAM)[0]

    @property
    def root(self) -> Path:
        """As its container sees it."""
        return Path(f"/proc/{self.process.pid}/root")

    @property
    def socket(self) -> Path:
        return self.root / str(SOCKET).lstrip("/")

    def state(self) -> StateAnswer:
        answer = ask_actuator(self.socket, StateRequest())
        assert isinstance(answer, StateAnswer)
        return answer


def test_a_layout_is_changed_by_a_container_without_token_and_network_and_known_to_the_next_pod(
    there: GpuCluster,
) -> None:
    mig = NodeMig.on(there.gpus[there.node.name])
    folder = there.cluster.overlay()
    (folder / "kustomization.yaml").write_text(kustomization())
    there.cluster.plane.kubectl("apply", "-k", folder)
    pod = ActuatorPod(there)
    first = pod.settled()

    assert not (pod.root / CREDENTIALS.lstrip("/")).exists()
    devices = Path(f"/proc/{pod.process.pid}/net/dev").read_text().splitlines()[2:]
    assert [line.partition(":")[0].strip() for line in devices] == ["lo"]
    assert (pod.state().problem, pod.state().last) == ("", None)

    simulation = there.gpus[there.node.name].simulation
    (gpu,) = mig.uuids()
    before = set((simulation.host_root / "dev/nvidia-caps").iterdir())
    wanted = RequestedLayout(
        mig=True, instances=(RequestedInstance(profile="3g.40gb", compute=(3,)),) * 2
    )
    request = ApplyRequest(change="from-the-test", origin="a test", desired={gpu: wanted})
    answer = ask_actuator(pod.socket, request, timeout_seconds=SOON)
    assert isinstance(answer, ChangeAnswer), answer
    assert answer.outcome is Outcome.APPLIED
    assert {profile for _, profile, _ in mig.devices().values()} == {"3g.40gb"}
    made = [it for it in (simulation.host_root / "dev/nvidia-caps").iterdir() if it not in before]
    assert len(made) == 4  # of two GPU instances and what is in them

    path = f"/api/v1/namespaces/{names.NAMESPACE}/pods/{first['metadata']['name']}"
    there.cluster.plane.demand("DELETE", path)
    pod.settled(other_than=first["metadata"]["uid"])
    last = pod.state().last
    assert last is not None
    assert (last.change, last.outcome) == ("from-the-test", Outcome.APPLIED)
