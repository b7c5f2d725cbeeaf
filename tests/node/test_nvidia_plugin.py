# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's device plugin, the kubelet's device manager and our agent on one node.

The judge is what the device manager handed out: its checkpoint, and the environment in the
containers, which the plugin filled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pytest

from tests.agent.agent_process import until
from tests.node import attribution, handed_out
from tests.node.attribution import Attribution
from tests.node.gpu_cluster import NAMESPACE, PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.nvidia_plugin import GPU, NvidiaPlugin
from tests.node.real_node import SOON
from tests.reused import Reused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MACHINE = "dgx-a100"
GPUS = 8
SHARES = 3
"""Of each GPU."""
SHARED = f"{GPU}.shared"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reused[GpuCluster]]:
    """Starts the one that :func:`there` lends."""

    @contextlib.contextmanager
    def started() -> Iterator[GpuCluster]:
        with gpu_cluster(tmp_path_factory.mktemp("plugin"), MACHINE) as found:
            plugin = NvidiaPlugin.start(found.cluster.plane, found.node)
            found.plugins[found.node.name] = plugin
            yield found

    with contextlib.closing(Reused(started)) as reused:
        yield reused


@pytest.fixture
def there(request: pytest.FixtureRequest, clusters: Reused[GpuCluster]) -> Iterator[GpuCluster]:
    """One node with a DGX A100, the agent and the plugin."""
    with clusters.lent(request.session) as found:
        yield found


@pytest.fixture
def plugin(there: GpuCluster) -> NvidiaPlugin:
    """The plugin there."""
    return there.plugins[there.node.name]


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


@pytest.fixture(params=["as ever", pytest.param("renamed", marks=pytest.mark.long)])
def shared(request: pytest.FixtureRequest, there: GpuCluster) -> Iterator[str]:
    """The resource of a plugin that shares each GPU out by time; then it is as before."""
    renamed = request.param == "renamed"
    sharing = {"renameByDefault": renamed, "resources": [{"name": GPU, "replicas": SHARES}]}
    restart_plugin(there, {"sharing": {"timeSlicing": sharing}})
    yield SHARED if renamed else GPU
    restart_plugin(there, {})


def restart_plugin(there: GpuCluster, settings: Mapping[str, object]) -> None:
    """As another pod, with these settings."""
    name = there.node.name
    there.plugins[name].stop()
    there.plugins[name] = NvidiaPlugin.start(there.cluster.plane, there.node, settings=settings)


def test_shares_of_gpus_are_attributed_and_no_gpu_counts_as_whole(
    there: GpuCluster, shared: str
) -> None:
    """More shares than GPUs are asked for: some pods have the same GPU, and it is each one's."""
    plane, node = there.cluster.plane, there.node
    until(lambda: there.plugins[node.name].allocatable().get(shared) == SHARES * GPUS, SOON)
    requests = {"one": 1, "two": 2, "many": SHARES * GPUS - GPUS}
    for name, number in requests.items():
        plane.demand("POST", PODS, gpu_pod(name, gpus("only", number, resource=shared)))
    until(lambda: requests.keys() <= {it.pod for it in handed_out.running(node)}, SOON)
    view = Attribution(there, node.name)
    attribution.settle([view])

    true = view.true()
    assert true.allocated == {shared: sum(requests.values())}
    assert (true.whole, true.free) == (0, 0)
    assert len({part for *_, part in true.holdings}) < len(true.holdings)
    for name in requests:
        plane.demand("DELETE", f"{PODS}/{name}")
    attribution.settle([view])
