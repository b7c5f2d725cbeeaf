# SPDX-License-Identifier: Apache-2.0
"""A real etcd put back to a backup: what was lost with it comes back, and every cache is true."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api import keys, names
from fleet.fleet_cache import FleetCache
from fleet.fleet_watches import FleetWatches
from fleet.rollout_memory import EMPTY
from kube.api import Object
from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.watches import Watches
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.cluster.agents import Site, agent, has_topology
from tests.controlplane.own import OwnPlane
from tests.fleet.simulated_fleet import TERMS, agent_notes
from tests.kube.clusters import client
from tests.scheduler.fleets import topology

pytestmark = pytest.mark.cluster

UP = 'gpuscape_source_up{source="kubernetes"} 1.0'
DOWN = 'gpuscape_source_up{source="kubernetes"} 0.0'
COUNT = "nvidia.com/gpu.count"
LATER_WRITES = 50
"""After the backup: by so much the versions go back."""


@pytest.fixture
def plane(site: Site) -> OwnPlane:
    """The module's own."""
    assert isinstance(site.plane, OwnPlane)
    return site.plane


class Backup:
    """A copy of the store's data, made while nothing runs."""

    def __init__(self, plane: OwnPlane, folder: Path) -> None:
        self._plane = plane
        self._copy = folder / "backup"
        with plane.stopped() as store:
            shutil.copytree(store, self._copy)

    def put_back(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Lose all that was written since; ``meanwhile`` runs while there is no server."""
        with self._plane.stopped() as store:
            meanwhile()
            shutil.rmtree(store)
            shutil.copytree(self._copy, store)


def write_much(plane: OwnPlane) -> None:
    """Somebody changes something many times."""
    other = plane.make_node()
    for number in range(LATER_WRITES):
        edit(plane, other, {"metadata": {"labels": {"number": str(number)}}})


def edit(plane: OwnPlane, node: str, patch: Object) -> None:
    """Somebody changes a Node."""
    kind = "application/merge-patch+json"
    plane.demand("PATCH", f"/api/v1/nodes/{node}", patch, content_type=kind)


def test_labels_that_a_restore_took_come_back_and_the_metric_is_true_meanwhile(
    site: Site, plane: OwnPlane, tmp_path: Path
) -> None:
    node = plane.make_node()
    pod = plane.bound_pod(site.namespace, names.AGENT, node)
    backup = Backup(plane, tmp_path)
    simulation = Simulation.create("a30-pair", tmp_path)
    with agent(site, node, simulation, tmp_path, pod=pod) as process:
        until(lambda: has_topology(site, node))
        until(lambda: UP in process.metrics())
        write_much(plane)
        site.edit(node, labels={"foreign": "later"})
        until(lambda: site.labels(node)[COUNT] == "2")
        before = int(site.node(node)["metadata"]["resourceVersion"])

        backup.put_back(lambda: until(lambda: DOWN in process.metrics()))

        assert "foreign" not in site.labels(node)
        assert int(site.node(node)["metadata"]["resourceVersion"]) < before
        until(lambda: site.labels(node).get(COUNT) == "2")
        until(lambda: UP in process.metrics())
        site.edit(node, labels={COUNT: "64"})  # at a version that the agent has seen before
        until(lambda: site.labels(node).get(COUNT) == "2")
        assert int(site.node(node)["metadata"]["resourceVersion"]) < before


@contextlib.contextmanager
def caches(plane: OwnPlane) -> Iterator[tuple[FleetCache, NodeCache]]:
    """The coordinator's and the extender's, each behind its watches."""
    fleet, nodes = FleetCache(TERMS), NodeCache(ScoreTables())
    api = client("caches", plane.kubeconfig())
    followed = FleetWatches(api, fleet, lambda: None), Watches(api, nodes)
    for watches in followed:
        watches.start()
    until(lambda: fleet.is_synced and nodes.synced)
    yield fleet, nodes
    for watches in followed:
        watches.close()
    api.close()


def test_the_caches_of_coordinator_and_extender_are_as_the_store_was_put_back(
    plane: OwnPlane, tmp_path: Path
) -> None:
    asked = agent_notes("0" * 16, "sevenths", "waiting")
    notes = {key: text for key, text in asked.items() if text} | {keys.TOPOLOGY: topology()}
    node = plane.make_node(annotations=notes)
    backup = Backup(plane, tmp_path)
    with caches(plane) as (fleet, nodes):
        write_much(plane)
        edit(plane, node, {"spec": {"unschedulable": True}})
        lost = plane.make_node(annotations=notes)

        def shown() -> tuple[bool, bool, bool]:
            """Whether the one Node is cordoned, and whether both caches have the other."""
            view = fleet.view(EMPTY, is_paused=False).nodes
            return view[node].unschedulable, lost in view, lost in nodes.names()

        until(lambda: shown() == (True, True, True))

        backup.put_back()

        until(lambda: shown() == (False, False, False))
        edit(plane, node, {"spec": {"unschedulable": True}})
        until(lambda: shown() == (True, False, False))
