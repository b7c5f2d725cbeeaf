# SPDX-License-Identifier: Apache-2.0
"""A node without an API server: what it can give follows its machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from api.mig_resources import MigStrategy
from kubelet.podresources.podresources_client import PodResources
from simulator.simulation import Simulation
from tests.kubelet_nodes.cases import FirstOffered, pod
from tests.kubelet_nodes.devices import Refused
from tests.kubelet_nodes.node import Node
from tests.kubelet_nodes.offer import GPU

SEVENTH = "nvidia.com/mig-1g.5gb"


def cut(simulation: Simulation, folder: Path) -> None:
    """Have each GPU of a DGX A100 in seven parts."""
    parts = Simulation.create("dgx-a100-mig-single", folder).state.gpus
    simulation.edit(lambda state: replace(state, gpus=parts))


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("dgx-a100", tmp_path / "machine")


@pytest.fixture
def node(simulation: Simulation, tmp_path: Path) -> Node:
    strategy = MigStrategy.MIXED
    return Node("node-a", simulation, FirstOffered(), tmp_path / "sockets", strategy=strategy)


def test_what_can_be_given_follows_the_mig_layout(
    node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    assert node.resources()["allocatable"] == {GPU: "8"}
    cut(simulation, tmp_path / "cut")
    node.look()
    assert node.resources() == {
        "capacity": {GPU: "0", SEVENTH: "56"},
        "allocatable": {GPU: "0", SEVENTH: "56"},
    }


def test_a_pod_is_given_a_mig_device_and_the_socket_tells_it(
    node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    cut(simulation, tmp_path / "cut")
    node.look()
    node.admit(pod("p", resource=SEVENTH))
    node.server.start()
    (told,) = PodResources(node.server.path).list()
    node.server.stop()
    ((part,),) = [container.resources for container in told.containers]
    assert part.resource == SEVENTH
    assert [each.partition("-")[0] for each in part.ids] == ["MIG"]


def test_a_gpu_that_was_cut_is_given_whole_to_nobody(
    node: Node, simulation: Simulation, tmp_path: Path
) -> None:
    cut(simulation, tmp_path / "cut")
    node.look()
    with pytest.raises(Refused, match="no healthy devices present"):
        node.admit(pod("p"))


def test_a_removed_pod_is_told_no_more(node: Node) -> None:
    node.server.start()
    node.admit(pod("p"))
    node.remove("p")
    told = PodResources(node.server.path).list()
    node.server.stop()
    assert told == ()
