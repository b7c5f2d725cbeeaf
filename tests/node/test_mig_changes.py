# SPDX-License-Identifier: Apache-2.0
"""MIG layouts that change next to pods, with NVIDIA's device plugin in both strategies.

A small one is in ``test_pod_resources.py``, on a node that is there anyway.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from api import names
from api.mig_resources import MigStrategy
from simulator.clibrary.served_machine import served_machine
from simulator.driver import clients
from simulator.simulation import Simulation
from simulator.state.edits import with_gpu_changed
from simulator.state.machine_state import GpuInstance
from tests.agent.agent_process import until
from tests.controlplane.lifetime import end_with_parent
from tests.node import attribution, mig_holder
from tests.node.container_agents import roll_out
from tests.node.gpu_cluster import GpuCluster, gpu_cluster
from tests.node.mig_change_trial import (
    DEVICE_SPECS,
    MIXED_CHANGE,
    MIXED_MACHINE,
    SINGLE_CHANGE,
    MigChangeTrial,
    change_beside_pods,
    single_machine,
)
from tests.node.node_mig import NodeMig
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.real_node import SOON
from tests.reused import Reused

NODES: Final = {MigStrategy.SINGLE: "real-1", MigStrategy.MIXED: "real-2"}
CHANGES: Final = {MigStrategy.SINGLE: SINGLE_CHANGE, MigStrategy.MIXED: MIXED_CHANGE}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reused[GpuCluster]]:
    """Starts the one that :func:`there` lends."""

    @contextlib.contextmanager
    def started() -> Iterator[GpuCluster]:
        folder = tmp_path_factory.mktemp("mig")
        with gpu_cluster(folder, single_machine(), MIXED_MACHINE) as found:
            for node in found.cluster.nodes.values():
                node.import_image(mig_holder.image(folder / f"image-{node.name}"))
            yield found

    with contextlib.closing(Reused(started)) as reused:
        yield reused


@pytest.fixture
def there(request: pytest.FixtureRequest, clusters: Reused[GpuCluster]) -> Iterator[GpuCluster]:
    """A node for each strategy, without a plugin."""
    with clusters.lent(request.session) as found:
        yield found


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("nodes", ["nodes passed", "nodes not passed"])
@pytest.mark.parametrize("strategy", NODES)
def test_pods_keep_their_instances_and_new_ones_get_what_was_made(
    there: GpuCluster, strategy: MigStrategy, nodes: str
) -> None:
    """With the plugin's pass-device-specs on, containers have the device nodes of their instances
    alone, which the change has made before the plugin looked. At last a command waits for the end
    of the one that got what was made, and brings the first layout back."""
    name = NODES[strategy]
    node, settings = there.cluster.nodes[name], DEVICE_SPECS if nodes == "nodes passed" else {}
    mig = NodeMig.on(there.gpus[name])
    at_first = mig.devices()
    there.plugins[name] = NvidiaPlugin.start(
        there.cluster.plane, node, strategy=strategy, settings=settings
    )
    label_by(there, strategy)
    trial = MigChangeTrial(
        there=there, node=node, mig=mig, strategy=strategy, settings=settings, labelled=True
    )

    late = change_beside_pods(trial, CHANGES[strategy])

    gpu = CHANGES[strategy].gpu
    layout = {f"{place[1]}@{place[2]}": 1 for place in at_first.values() if place[0] == gpu}
    trial.outlast(gpu, layout, late)
    trial.end()
    assert mig.devices() == at_first
    plugin = there.plugins.pop(name)
    plugin.stop()
    until(lambda: not any(plugin.allocatable().values()), SOON)


def label_by(there: GpuCluster, strategy: MigStrategy) -> None:
    """Have the agents label by this strategy, all of them."""
    words = ("set", "env", f"daemonset/{names.AGENT}", f"GPUSCAPE_MIG_STRATEGY={strategy}")
    there.cluster.plane.kubectl("-n", names.NAMESPACE, *words)
    roll_out(there.cluster)


@pytest.mark.parametrize("made_again", [False, True])
def test_the_program_in_the_pods_notices_that_its_device_is_gone(
    tmp_path: Path, made_again: bool
) -> None:
    """Also where another one has its place and its UUID since. Else it would find every change
    well done."""
    simulation = Simulation.create(single_machine(), tmp_path / "machine")
    program, log = mig_holder.build(tmp_path), tmp_path / "log"
    devices = [uuid for uuid, (_, instance) in attribution.parts(simulation) if instance][:2]
    with served_machine(simulation) as machine:
        assert machine.library
        environment = {
            "LD_LIBRARY_PATH": str(machine.library.parent),
            "NVIDIA_VISIBLE_DEVICES": ",".join(devices),
        }
        with log.open("w") as output:
            process = subprocess.Popen(
                [program], env=environment, stdout=output, preexec_fn=end_with_parent()
            )
        try:
            until(lambda: all(f"valid {device} 3" in log.read_text() for device in devices))
            (bus_id,) = simulation.state.gpus
            assert [it.pid for it in simulation.state.processes] == [process.pid] * 2
            there = simulation.state.gpus[bus_id].instances
            others = tuple(map(born_again, there)) if made_again else ()
            simulation.edit(with_gpu_changed(bus_id, instances=others))
            assert process.wait(SOON) == 3
            now = time.monotonic()
            assert not any(clients.is_running(it, now) for it in simulation.state.processes)
        finally:
            process.kill()
            process.wait()
    assert f"lost {devices[0]}" in log.read_text()


def born_again(instance: GpuInstance) -> GpuInstance:
    """Another instance of the same id at the same place."""
    compute = tuple(replace(it, birth=it.birth + 100) for it in instance.compute)
    return replace(instance, birth=instance.birth + 100, compute=compute)
