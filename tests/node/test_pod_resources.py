# SPDX-License-Identifier: Apache-2.0
"""Which pod has which device: the agent shows what the kubelet's device manager handed out.

Three nodes with NVIDIA's device plugin: whole GPUs, MIG devices under the strategy single, and
GPUs next to MIG devices of several profiles under the strategy mixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Final

import pynvml
import pytest

from api import names
from api.mig_resources import MigStrategy
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.node import attribution, dra_claims, handed_out, mig_holder
from tests.node.attribution import Attribution
from tests.node.dra_claims import with_claim
from tests.node.gpu_cluster import PODS, GpuCluster, gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.handed_out import RunningContainer
from tests.node.mig_change_trial import SMALL_CHANGE, MigChangeTrial, change_beside_pods
from tests.node.node_mig import NodeMig
from tests.node.nvidia_plugin import REGISTERED, NvidiaPlugin
from tests.node.pod_churn import PodChurn
from tests.node.real_node import SOON
from tests.reused import Reused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

WHOLE, SINGLE, MIXED = NODES = ("real-1", "real-2", "real-3")
STRATEGIES: Final = dict(zip(NODES, MigStrategy, strict=True))
STEPS_AT_ONCE: Final = 4
"""Before what is shown is compared with what is true."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reused[GpuCluster]]:
    """Starts the one that :func:`there` lends."""
    machines = ("dgx-a100", "dgx-a100-mig-single", "dgx-a100-mig-mixed")

    @contextlib.contextmanager
    def started() -> Iterator[GpuCluster]:
        with gpu_cluster(tmp_path_factory.mktemp("pod-resources"), *machines) as found:
            for name in NODES:
                found.plugins[name] = start_plugin(found, name)
            yield found

    with contextlib.closing(Reused(started)) as reused:
        yield reused


@pytest.fixture
def there(request: pytest.FixtureRequest, clusters: Reused[GpuCluster]) -> Iterator[GpuCluster]:
    """The nodes, by number, with their agents and plugins."""
    with clusters.lent(request.session) as found:
        yield found


@pytest.fixture
def plugins(there: GpuCluster) -> dict[str, NvidiaPlugin]:
    """The plugin of each node; tests put another one in its place."""
    return there.plugins


def start_plugin(there: GpuCluster, node: str) -> NvidiaPlugin:
    """With the strategy of its node."""
    nodes = there.cluster.nodes
    return NvidiaPlugin.start(there.cluster.plane, nodes[node], strategy=STRATEGIES[node])


def settle(there: GpuCluster) -> None:
    """Wait until every agent shows what is true."""
    attribution.settle([Attribution(there, name) for name in NODES])


@pytest.mark.parametrize(
    "pods", [10, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])]
)
def test_random_pods_are_attributed_as_the_device_manager_has_it(
    pods: int, there: GpuCluster, plugins: dict[str, NvidiaPlugin]
) -> None:
    """While kubelets, plugins and agents are restarted in turn."""
    random = Random(pods)  # noqa: S311  # has to repeat
    churns = [PodChurn(there=there, node=name, random=random) for name in NODES]
    restarts = cycle((restart_kubelet, restart_plugin, restart_agent))
    settle(there)
    try:
        while sum(it.made for it in churns) < pods:
            for churn in churns:
                for _ in range(random.randint(1, STEPS_AT_ONCE)):
                    churn.step()
            settle(there)
            node, restart = random.choice(NODES), next(restarts)
            churns[0].story.append(f"{restart.__name__} of {node}")
            restart(there, plugins, node)
            settle(there)
    except Exception as error:
        error.add_note("\n".join(line for churn in churns for line in churn.story))
        raise
    finally:
        for churn in churns:
            churn.clear()
    until(lambda: not any(churn.listed() for churn in churns), SOON)
    settle(there)


def restart_kubelet(there: GpuCluster, plugins: dict[str, NvidiaPlugin], node: str) -> None:
    """The plugin registers with the new one by itself."""
    registered = plugins[node].log().count(REGISTERED)
    there.cluster.nodes[node].stop("kubelet")
    there.cluster.nodes[node].start_kubelet()
    until(lambda: plugins[node].log().count(REGISTERED) > registered, SOON)


def restart_plugin(there: GpuCluster, plugins: dict[str, NvidiaPlugin], node: str) -> None:
    """As another pod."""
    plugins[node].stop()
    plugins[node] = start_plugin(there, node)


def restart_agent(there: GpuCluster, plugins: dict[str, NvidiaPlugin], node: str) -> None:  # noqa: ARG001
    """As another pod."""
    (pod,) = there.cluster.pods(node)
    path = f"/api/v1/namespaces/{names.NAMESPACE}/pods/{pod['metadata']['name']}"
    there.cluster.plane.demand("DELETE", path)
    until(lambda: pod["metadata"]["uid"] not in uids(there, node), SOON)


def uids(there: GpuCluster, node: str) -> list[str]:
    """Of the agents' pods there."""
    return [it["metadata"]["uid"] for it in there.cluster.pods(node)]


def test_what_an_init_container_alone_was_given_is_taken_and_reported_nowhere(
    there: GpuCluster,
) -> None:
    """While it runs and after: the pod keeps it to its end, and the kubelet names no holder.

    Those that the pod's other containers were given as well are theirs.
    """
    node = there.cluster.nodes[WHOLE]
    sidecar, first = gpus("sidecar", 1, sidecar=True), gpus("first", 4)
    pod = gpu_pod("staged", gpus("main", 2), init=[sidecar, first], node=WHOLE)
    uid = there.cluster.plane.demand("POST", PODS, pod)["metadata"]["uid"]
    for running in ("first", "main"):
        until(lambda running=running: container(there, "staged", running) is not None, SOON)  # type: ignore[misc]
        given = {it.container: it.ids for it in handed_out.grants(node) if it.pod_uid == uid}
        assert {name: len(ids) for name, ids in given.items()} == {
            "sidecar": 1,
            "first": 4,
            "main": 2,
        }
        assert given["main"] < given["first"]
        assert given["sidecar"].isdisjoint(given["first"])
        settle(there)
        shown = Attribution(there, WHOLE).shown()
        assert shown
        assert shown.used.bit_count() == len(given["sidecar"] | given["main"])
        found = container(there, "staged", running)
        assert found
        node.run("kill", "-TERM", str(found.process))
    there.cluster.plane.demand("DELETE", f"{PODS}/staged")
    settle(there)


def test_while_the_plugin_is_away_holders_stay_and_nothing_is_free(
    there: GpuCluster, plugins: dict[str, NvidiaPlugin]
) -> None:
    """On a node with whole GPUs and one with MIG devices of several profiles."""
    there.cluster.plane.demand("POST", PODS, gpu_pod("whole", gpus("main", 3), node=WHOLE))
    profile = gpus("main", 1, resource="nvidia.com/mig-1g.5gb")
    there.cluster.plane.demand("POST", PODS, gpu_pod("part", profile, node=MIXED))
    until(lambda: all(container(there, it, "main") for it in ("whole", "part")), SOON)
    settle(there)
    views = {name: Attribution(there, name) for name in (WHOLE, MIXED)}
    before = {name: view.true() for name, view in views.items()}

    for name in views:
        plugins[name].stop()
    until(lambda: not any(any(plugins[it].allocatable().values()) for it in views), SOON)
    settle(there)

    for name, view in views.items():
        shown = view.shown()
        assert shown
        assert shown.holdings == before[name].holdings != frozenset()
        assert (shown.free, shown.whole, shown.used) == (0, 0, before[name].used)
        assert shown.allocatable == {}
    for name in views:
        plugins[name] = start_plugin(there, name)
    until(lambda: {name: view.shown() for name, view in views.items()} == before, SOON)
    for pod in ("whole", "part"):
        there.cluster.plane.demand("DELETE", f"{PODS}/{pod}")
    settle(there)


def test_gpus_of_claims_are_attributed_as_the_scheduler_allocated_them(
    there: GpuCluster, plugins: dict[str, NvidiaPlugin]
) -> None:
    """DRA instead of a device plugin, by the names that NVIDIA's driver gives its devices.

    Nothing of it is whole for pods that ask for ``nvidia.com/gpu``.
    """
    plane, node = there.cluster.plane, there.cluster.nodes[WHOLE]
    plugins[WHOLE].stop()
    devices = minors(there.gpus[WHOLE].simulation)
    dra_claims.start_driver(plane, node, devices)
    dra_claims.make_claim(plane, "shared", all=2)
    dra_claims.make_claim(plane, "parts", one=1, other=1)
    pods = (
        with_claim(
            gpu_pod("sharing", gpus("first", 0), gpus("second", 0), gpus("without", 0), node=WHOLE),
            "shared",
            {"first": None, "second": None},
        ),
        with_claim(gpu_pod("parted", gpus("main", 0), node=WHOLE), "parts", {"main": "one"}),
        gpu_pod("extended", gpus("main", 1, resource=dra_claims.EXTENDED), node=WHOLE),
    )
    for pod in pods:
        plane.demand("POST", PODS, pod)
    names_of_pods = [pod["metadata"]["name"] for pod in pods]
    until(
        lambda: all(
            any(it.pod == name for it in handed_out.running(node)) for name in names_of_pods
        ),
        SOON,
    )
    true = dra_claims.claims_of_pods(plane, devices)
    assert len({part for *_, part in true}) == 2 + 2 + 1
    view = Attribution(there, WHOLE)

    def published() -> bool:
        shown = view.shown()
        if shown is None or shown.holdings != true or shown.pods != view.masks(true):
            return False
        return (shown.used.bit_count(), shown.whole, shown.free) == (5, 0, 0)

    try:
        until(published, SOON)
    except AssertionError as error:
        error.add_note(f"{view.shown()}, and by the claims {true}")
        raise

    for name in names_of_pods:
        plane.demand("DELETE", f"{PODS}/{name}")
    for claim in ("shared", "parts"):
        dra_claims.delete_claim(plane, claim)
    dra_claims.stop_driver(plane, node)
    plugins[WHOLE] = start_plugin(there, WHOLE)
    settle(there)


def minors(simulation: Simulation) -> dict[str, str]:
    """Name of each GPU in NVIDIA's DRA driver, by its minor number, to its UUID."""
    with simulation:
        pynvml.nvmlInit()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        found = {
            f"gpu-{pynvml.nvmlDeviceGetMinorNumber(gpu)}": str(pynvml.nvmlDeviceGetUUID(gpu))
            for gpu in handles
        }
        pynvml.nvmlShutdown()
    return found


def container(there: GpuCluster, pod: str, name: str) -> RunningContainer | None:
    """The container of that name, when it runs."""
    found = (it for node in there.cluster.nodes.values() for it in handed_out.running(node))
    return next((it for it in found if (it.pod, it.container) == (pod, name)), None)


@pytest.mark.long  # as test_mig_fleet.py, with more
def test_a_layout_changes_next_to_pods_and_takes_nothing_from_them(
    there: GpuCluster, tmp_path: Path
) -> None:
    """Their handles stay valid, what would take from them is refused, and when the plugin has been
    restarted a new pod gets what was made. More of it is in ``test_mig_changes.py``."""
    node = there.cluster.nodes[MIXED]
    node.import_image(mig_holder.image(tmp_path))
    mig = NodeMig.on(there.gpus[MIXED])
    trial = MigChangeTrial(there=there, node=node, mig=mig, strategy=STRATEGIES[MIXED])

    change_beside_pods(trial, SMALL_CHANGE)
    trial.end()
