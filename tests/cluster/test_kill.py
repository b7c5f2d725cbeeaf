"""Killed before or after any effect on the API server, an agent that starts again mends all."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest

from discovery.simulator.simulation import Return, Simulation
from labelers import keys, names
from tests.agent.processes import SOON, AgentProcess, until
from tests.cluster.agents import Site, agent
from tests.cluster.gateway import Effect, Gateway, Stopped
from tests.kubelet.cases import FirstOffered
from tests.kubelet.node import Node

pytestmark = pytest.mark.cluster

EFFECTS = {
    "Lease": Effect(method="POST", resource="leases", number=1),
    "labels": Effect(method="PATCH", resource="nodes", number=1),
    "Event": Effect(method="POST", resource="events", number=1),
    "labels of a lost GPU": Effect(method="PATCH", resource="nodes", number=2),
    "state in the Lease": Effect(method="PATCH", resource="leases", number=1),
}
"""All kinds of effects that an agent has."""

LEFT_ALONE = "nvidia.com/gpu.family"
"""nfd-master's on this Node, which is worth an Event."""
QUICK = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", EFFECTS.values(), ids=EFFECTS)
def test_labels_are_right_in_the_end_and_none_is_removed_by_mistake(
    site: Site, tmp_path: Path, effect: Effect, when: str
) -> None:
    node = site.plane.make_node(
        labels={"someone.else/label": "stays"}, annotations={names.FEATURE_LABELS: LEFT_ALONE}
    )
    simulation = Simulation.create("a30-pair", tmp_path)
    pod = site.plane.bound_pod(site.namespace, names.AGENT, node)
    mark = site.plane.mark()

    with kubelet(simulation, tmp_path / "sockets"):
        run_killed(site, node, simulation, tmp_path, pod, at=(effect, when))
        with agent(site, node, simulation, tmp_path, options=QUICK, pod=pod):
            until(lambda: site.labels(node).get(keys.FOUND) == "2" and shows_health(site, node))
            lose_a_gpu(simulation)
            until(lambda: site.labels(node).get(keys.FOUND) == "1")
            after = site.labels(node)

    assert after["someone.else/label"] == "stays"
    assert LEFT_ALONE not in after
    assert (after[keys.FOUND], after[keys.EXPECTED]) == ("1", "2")
    assert after["nvidia.com/gpu.product"] == "NVIDIA-A30"
    assert ever_removed(site, node, mark) <= {keys.HEALTH_REASON}  # which a healthy node has not


def run_killed(
    site: Site,
    node: str,
    simulation: Simulation,
    folder: Path,
    pod: dict[str, object],
    *,
    at: tuple[Effect, str],
) -> None:
    """An agent whose process is killed before or after an effect."""
    gateway = Gateway(site.plane)
    running: Future[AgentProcess] = Future()
    killed: list[bool] = []

    def kill(effect: Effect) -> None:
        if effect == at[0]:
            killed.append(kill_whole(running.result(SOON)))
            raise Stopped

    setattr(gateway, at[1], kill)
    with gateway.serving() as address:
        token = site.plane.token(site.namespace, names.AGENT, pod=pod)
        kubeconfig = gateway.kubeconfig(address, token, folder / "kubeconfig")
        options = {"GPUSCAPE_KUBECONFIG": str(kubeconfig), **QUICK}
        with agent(site, node, simulation, folder, options=options, pod=pod) as process:
            running.set_result(process)
            until(lambda: bool(killed) or keys.FOUND in site.labels(node))
            lose_a_gpu(simulation)
            until(lambda: bool(killed))


@contextlib.contextmanager
def kubelet(simulation: Simulation, folder: Path) -> Iterator[None]:
    """A pod-resources socket in this folder, so that there is a state to publish."""
    server = Node("any", simulation, FirstOffered(), folder).server
    server.start()
    try:
        yield
    finally:
        server.stop()


def kill_whole(process: AgentProcess) -> bool:
    """SIGKILL for the agent and its device readers, as when a container is killed."""
    tree = psutil.Process(process.process.pid)
    for each in [tree, *tree.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(each.pid, signal.SIGKILL)
    return True


def lose_a_gpu(simulation: Simulation) -> None:
    """Have one GPU fall off the bus."""
    simulation.fault(Return(code=15), bus_id=next(iter(simulation.state.gpus)))


def shows_health(site: Site, node: str) -> bool:
    """Whether the agent has said how the GPUs are."""
    return site.labels(node).get(keys.HEALTH) == "healthy"


def ever_removed(site: Site, node: str, mark: int) -> set[str]:
    """Labels of ours that any version of the Node lacked after one had them."""
    had: set[str] = set()
    removed: set[str] = set()
    for event in site.plane.audit(since=mark, resource="nodes", name=node, code=200):
        labels = event.get("responseObject", {}).get("metadata", {}).get("labels")
        if labels is None or "dryRun=All" in event["requestURI"]:
            continue
        removed |= had - labels.keys()
        had |= {key for key in labels if keys.label(key) is not None}
    return removed
