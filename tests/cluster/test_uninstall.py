# SPDX-License-Identifier: Apache-2.0
"""``gpuscape uninstall`` after real agents on a real API server: nothing of theirs is left."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from pathlib import Path
from typing import Any

import pytest

from api import keys, names
from kube.api import NODES
from simulator.simulation import Simulation
from tests.agent.agent_process import GPUSCAPE, until
from tests.cluster.agents import Site, agent, has_topology
from tests.kube.clusters import client

pytestmark = pytest.mark.cluster

_BOOKKEEPING = ("resourceVersion", "managedFields")
"""Of the API server: it also keeps who wrote what is gone."""


def uninstall(site: Site, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an admin."""
    config = folder / "kubeconfig"
    config.write_text(Path(site.plane.kubeconfig()).read_text())
    return subprocess.run(
        [GPUSCAPE, "uninstall", "--kubeconfig", config, "-n", site.namespace, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def seen(site: Site, node: str) -> dict[str, Any]:
    """A Node without what the API server notes about writes."""
    found = site.node(node)
    meta = {key: it for key, it in found["metadata"].items() if key not in _BOOKKEEPING}
    return {**found, "metadata": {"labels": {}, "annotations": {}, **meta}}


def test_nodes_are_as_they_were_before_the_agents(site: Site, tmp_path: Path) -> None:
    nodes = [site.plane.make_node() for _ in range(2)]
    before = [seen(site, node) for node in nodes]
    for number, node in enumerate(nodes):
        folder = tmp_path / str(number)
        folder.mkdir()
        with agent(site, node, Simulation.create("a30-pair", folder), folder):
            until(functools.partial(has_topology, site, node))
            running = uninstall(site, tmp_path, "--yes")
            assert running.returncode == 5, running.stderr
            assert f"the agent of Lease {names.agent_lease(node)}" in running.stderr
    theirs = {keys.MACHINE: "a-rack"}
    with contextlib.closing(client("gpu-feature-discovery", site.plane.kubeconfig())) as api:
        api.patch(NODES, nodes[1], {"metadata": {"labels": theirs}})

    done = uninstall(site, tmp_path, "--yes")

    assert done.returncode == 0, done.stderr
    before[1]["metadata"]["labels"] |= theirs
    assert [seen(site, node) for node in nodes] == before
    assert [site.lease(node) for node in nodes] == [None, None]
    assert "ClusterRole gpuscape-agent" in done.stdout
    assert "Nothing to remove." in uninstall(site, tmp_path, "--yes").stdout
