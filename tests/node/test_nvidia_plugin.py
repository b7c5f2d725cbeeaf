# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's device plugin, the kubelet's device manager and our agent on one node.

The judge is what the device manager handed out: its checkpoint, and the environment in the
containers, which the plugin filled.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.agent_process import until
from tests.node import handed_out
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.nvidia_plugin import GPU, NvidiaPlugin
from tests.node.real_node import SOON

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MACHINE = "dgx-a100"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """One node with a DGX A100 and the agent."""
    with gpu_cluster(tmp_path_factory.mktemp("plugin"), MACHINE) as found:
        yield found


@pytest.fixture(scope="module")
def plugin(there: GpuCluster) -> NvidiaPlugin:
    """The plugin; it ends with the node."""
    return NvidiaPlugin.start(there.cluster.plane, there.node)


def test_the_node_offers_the_gpus_of_its_machine(there: GpuCluster, plugin: NvidiaPlugin) -> None:
    (simulated,) = there.gpus.values()
    machine = simulated.simulation.state.machine
    assert machine

    offered = handed_out.registered(there.node)

    assert plugin.allocatable() == {GPU: len(machine.gpus)}
    assert {name: len(ids) for name, ids in offered.items()} == plugin.allocatable()
    shown = there.scrape(there.node.name)
    assert shown
    infos = [dict(labels) for name, labels in shown if name == "gpuscape_gpu_info"]
    assert offered[GPU] == {labels["uuid"] for labels in infos}


@pytest.mark.usefixtures("plugin")
def test_a_pod_has_the_gpus_that_its_environment_names(there: GpuCluster) -> None:
    plane, node = there.cluster.plane, there.node
    pod = plane.demand("POST", PODS, gpu_pod("two", gpus("only", 2)))
    until(lambda: any(it.pod == "two" for it in handed_out.running(node)), SOON)

    (container,) = [it for it in handed_out.running(node) if it.namespace == NAMESPACE]
    (grant,) = handed_out.grants(node)

    assert (grant.pod_uid, grant.container) == (pod["metadata"]["uid"], "only")
    assert len(grant.ids) == 2
    assert container.visible == grant.ids
    plane.demand("DELETE", f"{PODS}/two")
