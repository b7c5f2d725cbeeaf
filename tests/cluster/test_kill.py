# SPDX-License-Identifier: Apache-2.0
"""Killed before or after any effect on the API server, an agent that starts again mends all."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from api import keys, names
from kube.api import Object
from simulator.simulation import Return, Simulation
from tests.agent.agent_process import SOON, AgentProcess, until
from tests.cluster import nfd
from tests.cluster.agents import Site, agent, has_topology
from tests.cluster.gateway import Effect, Gateway, Stopped
from tests.controlplane.own import OwnPlane, install_node_features
from tests.kubelet_nodes.cases import FirstOffered
from tests.kubelet_nodes.node import Node

pytestmark = pytest.mark.cluster

ON_NODE = {
    "Lease": Effect(method="POST", resource="leases", number=1),
    "labels": Effect(method="PATCH", resource="nodes", number=1),
    "Event": Effect(method="POST", resource="events", number=1),
    "labels of a lost GPU": Effect(method="PATCH", resource="nodes", number=2),
    "state in the Lease": Effect(method="PATCH", resource="leases", number=1),
}
"""All kinds of effects that an agent has which labels its Node."""

IN_NODE_FEATURE = {
    "NodeFeature": Effect(method="POST", resource="nodefeatures", number=1),
    "topology": Effect(method="PATCH", resource="nodes", number=1),
    "NodeFeature of a lost GPU": Effect(method="PATCH", resource="nodefeatures", number=1),
}
"""What differs for one that labels it by way of nfd-master."""

LEFT_ALONE = "nvidia.com/gpu.family"
"""nfd-master's on this Node, which is worth an Event."""
QUICK = {"GPUSCAPE_DISCOVER_INTERVAL": "1s", "GPUSCAPE_SAMPLE_INTERVAL": "1s"}


@pytest.fixture(scope="module", autouse=True)
def node_features(site: Site) -> None:
    """The cluster knows NodeFeatures."""
    assert isinstance(site.plane, OwnPlane)
    install_node_features(site.plane)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Labels of one node where an agent writes them: on the Node, or in its NodeFeature."""

    site: Site
    node: str
    sink: str

    def now(self) -> dict[str, str]:
        """Those there are; none before there is the object."""
        if self.sink == "node":
            return self.site.labels(self.node)
        path = nfd.node_feature(self.site.namespace, self.node)
        return self._of(self.site.plane.request("GET", path).body) or {}

    def ever_removed(self, mark: int) -> set[str]:
        """Labels of ours that any version of the object lacked after one had them."""
        resource, name = {
            "node": ("nodes", self.node),
            "nodefeature": ("nodefeatures", names.node_feature(self.node)),
        }[self.sink]
        had: set[str] = set()
        removed: set[str] = set()
        for event in self.site.plane.audit(since=mark, resource=resource, name=name, code=200):
            labels = self._of(event.get("responseObject", {}))
            if labels is None or "dryRun=All" in event["requestURI"]:
                continue
            removed |= had - labels.keys()
            had |= {key for key in labels if keys.label(key) is not None}
        return removed

    def _of(self, body: Object) -> dict[str, str] | None:
        found: dict[str, str] | None = body.get(
            "metadata" if self.sink == "node" else "spec", {}
        ).get("labels")
        return found


EFFECTS = [
    *(("node", *effect) for effect in ON_NODE.items()),
    *(("nodefeature", *effect) for effect in IN_NODE_FEATURE.items()),
]
KILLS = [
    pytest.param(
        *(sink, effect, when),
        id=f"{name}-{when}",
        marks=() if when == ("before", "after")[number % 2] else pytest.mark.long,
    )
    for number, (sink, name, effect) in enumerate(EFFECTS)
    for when in ("before", "after")
]
"""In ``make test`` before one effect and after the next."""


@pytest.mark.parametrize(("sink", "effect", "when"), KILLS)
def test_labels_are_right_in_the_end_and_none_is_removed_by_mistake(
    site: Site, tmp_path: Path, sink: str, effect: Effect, when: str
) -> None:
    node = site.plane.make_node(
        labels={"someone.else/label": "stays"}, annotations={names.FEATURE_LABELS: LEFT_ALONE}
    )
    labels = Labels(site=site, node=node, sink=sink)
    simulation = Simulation.create("a30-pair", tmp_path)
    pod = site.plane.bound_pod(site.namespace, names.AGENT, node)
    options = {**QUICK, "GPUSCAPE_SINK": sink}
    mark = site.plane.mark()

    with kubelet(simulation, tmp_path / "sockets"):
        run_killed(labels, simulation, tmp_path, pod, options, at=(effect, when))
        with agent(site, node, simulation, tmp_path, options=options, pod=pod):
            until(lambda: labels.now().get(keys.FOUND) == "2" and shows_health(labels))
            until(lambda: has_topology(site, node))
            lose_a_gpu(simulation)
            until(lambda: labels.now().get(keys.FOUND) == "1")
            after = labels.now()

    assert site.labels(node)["someone.else/label"] == "stays"
    assert LEFT_ALONE not in site.labels(node)
    assert (after[keys.FOUND], after[keys.EXPECTED]) == ("1", "2")
    assert after["nvidia.com/gpu.product"] == "NVIDIA-A30"
    assert labels.ever_removed(mark) <= {keys.HEALTH_REASON}  # which a healthy node has not


def run_killed(
    labels: Labels,
    simulation: Simulation,
    folder: Path,
    pod: Object,
    options: Mapping[str, str],
    *,
    at: tuple[Effect, str],
) -> None:
    """An agent whose process is killed before or after an effect."""
    site = labels.site
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
        options = {**options, "GPUSCAPE_KUBECONFIG": str(kubeconfig)}
        with agent(site, labels.node, simulation, folder, options=options, pod=pod) as process:
            running.set_result(process)
            until(lambda: bool(killed) or keys.FOUND in labels.now())
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


def shows_health(labels: Labels) -> bool:
    """Whether the agent has said how the GPUs are."""
    return labels.now().get(keys.HEALTH) == "healthy"
