# SPDX-License-Identifier: Apache-2.0
"""The real go-gpuallocator on simulated machines."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from discovery.model import NodeSnapshot
from simulator.simulation import Simulation
from tests.agent.agent_process import runs, until
from tests.kubelet_nodes.allocator import AllocationError, Allocator
from tests.kubelet_nodes.cases import pod
from tests.kubelet_nodes.devices import DeviceManager, Refused
from tests.kubelet_nodes.hardware import Hardware
from tests.kubelet_nodes.links import link_types
from tests.kubelet_nodes.offer import GPU, offer

pytestmark = pytest.mark.cluster

DGX1_TWO_LINKS = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
"""Pairs of a DGX-1 with two NVLinks. Source: its hybrid cube mesh."""


def machine(name: str, folder: Path) -> NodeSnapshot:
    snapshot = Hardware(Simulation.create(name, folder), "node-a").news()
    assert snapshot is not None
    return snapshot


def manager(snapshot: NodeSnapshot, policy: Allocator, seed: int = 0) -> DeviceManager:
    made = DeviceManager(policy, seed)
    made.register(offer(snapshot), snapshot)
    return made


def given(devices: DeviceManager, name: str, gpus: int) -> tuple[int, ...]:
    """Places in bus order of the GPUs that a pod is given."""
    (container,) = devices.admit(pod(name, gpus=gpus)).containers
    order = [device.id for device in devices.offer[GPU]]
    return tuple(sorted(order.index(device.id) for device in container.given[GPU]))


def test_a_bridged_pair_goes_together(allocator: Allocator, tmp_path: Path) -> None:
    devices = manager(machine("a100-pcie-pairs", tmp_path), allocator)
    bridges = devices.offer[GPU]
    assert len(bridges) >= 4
    pairs = {given(devices, f"p{number}", 2) for number in range(len(bridges) // 2)}
    assert pairs == {(at, at + 1) for at in range(0, len(bridges), 2)}


def test_both_gpus_of_a_pair_go_to_a_pod_of_two(allocator: Allocator, tmp_path: Path) -> None:
    assert given(manager(machine("a30-pair", tmp_path), allocator), "p", 2) == (0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_dgx1_gives_pairs_with_two_nvlinks_whatever_the_order(
    allocator: Allocator, tmp_path: Path, seed: int
) -> None:
    devices = manager(machine("dgx1-v100", tmp_path), allocator, seed)
    assert {given(devices, f"p{number}", 2) for number in range(4)} < DGX1_TWO_LINKS


def test_ties_are_decided_by_the_seed(allocator: Allocator, tmp_path: Path) -> None:
    snapshot = machine("dgx1-v100", tmp_path)
    first = [given(manager(snapshot, allocator, seed), "p", 2) for seed in range(10)]
    again = [given(manager(snapshot, allocator, seed), "p", 2) for seed in range(10)]
    assert first == again
    assert len(set(first)) > 1


def test_behind_switches_pcie_alone_decides(allocator: Allocator, tmp_path: Path) -> None:
    """Every pair of a DGX A100 has 12 NVLinks, but the library does not see them."""
    snapshot = machine("dgx-a100", tmp_path)
    pair = given(manager(snapshot, allocator), "p", 2)
    levels = snapshot.topology.pcie
    nearest = min(level for i, j in itertools.combinations(range(8), 2) if (level := levels[i][j]))
    assert levels[pair[0]][pair[1]] == nearest


def test_a_link_that_one_end_alone_sees_breaks_the_policy(
    allocator: Allocator, tmp_path: Path
) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    simulation.links_down("0000:17:00.0", 0, 1, 2, 3)
    snapshot = Hardware(simulation, "node-a").news()
    assert snapshot is not None
    with pytest.raises(Refused, match="should be bidirectional"):
        manager(snapshot, allocator).admit(pod("p", gpus=2))


def test_what_is_required_is_in_the_set(allocator: Allocator, tmp_path: Path) -> None:
    snapshot = machine("dgx1-v100", tmp_path)
    rows = [gpu.uuid or "" for gpu in snapshot.gpus]
    links = link_types(snapshot)
    chosen = allocator.prefer(rows, links, available=rows, required=(rows[5],), size=2)
    assert rows[5] in chosen


def test_the_process_goes_on_after_a_request_that_fails(allocator: Allocator) -> None:
    with pytest.raises(AllocationError, match="no device b"):
        allocator.prefer(["a"], [[()]], available=["b"], size=1)
    assert allocator.prefer(["a"], [[()]], available=["a"], size=1) == ("a",)


def test_the_process_ends_with_ours_however_that_ends() -> None:
    script = (
        "from tests.kubelet_nodes.allocator import Allocator;"
        " a = Allocator(); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        (child,) = psutil.Process(process.pid).children()
        process.kill()
    until(lambda: not runs(child))
