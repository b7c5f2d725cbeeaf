# SPDX-License-Identifier: Apache-2.0
"""Which GPUs reach each other over NVLink: everything that is published says the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml as nv
import pytest
from msgspec import structs

from api import keys, topology_annotation
from discovery.model import GpuSnapshot, NodeSnapshot
from discovery.sample import ReadingGroup
from labelers.annotations import topology_of
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from simulator.description.machine_catalog import load_machine, machine_names
from simulator.simulation import Simulation
from simulator.state.edits import with_gpu_changed
from tests import build
from tests.exporters.gpuscape_series import told
from tests.observed import Observed, look_at, observed

Pairs = dict[tuple[str, str], bool]
"""Ordered pair of bus ids to whether it is linked."""

MIG = {"mig": True, "mig_pending": True}


def by_driver(seen: Observed) -> Pairs:
    return {
        (it.bus_id, peer): status == nv.NVML_P2P_STATUS_OK
        for it in seen.samples
        for peer, status in it.nvlink_p2p
    }


def by_matrix(node: NodeSnapshot) -> Pairs:
    rows = range(len(node.gpus))
    return {
        (node.gpus[i].bus_id, node.gpus[j].bus_id): bool(node.topology.effective(i, j))
        for i in rows
        for j in rows
        if i != j
    }


def by_annotation(node: NodeSnapshot) -> Pairs:
    read = topology_annotation.decode(topology_annotation.encode(topology_of(node)))
    assert read is not None
    rows = range(read.n)
    return {
        (read.bus[i], read.bus[j]): bool(read.links(i, j)) for i in rows for j in rows if i != j
    }


def by_metric(node: NodeSnapshot) -> Pairs:
    bus_ids = {str(gpu.index): gpu.bus_id for gpu in node.gpus}
    found = {}
    for labels, links in told("gpuscape_topology_nvlinks", node).items():
        named = dict(labels)
        found[bus_ids[named["index"]], named["peer_pci_bus_id"]] = bool(links)
    return found


def changed(directory: Path, machine: str, *changes: dict[str, Any]) -> Observed:
    """The machine after these changes of its first GPUs' state, one each."""
    simulated = Simulation.create(machine, directory)
    gpus = load_machine(machine).gpus
    for gpu, change in zip(gpus[: len(changes)], changes, strict=True):
        simulated.edit(with_gpu_changed(gpu.bus_id, **change))
    return look_at(simulated, machine, (ReadingGroup.P2P,))


def active_links(gpu: GpuSnapshot) -> int:
    return sum(link.active is True for link in build.nvidia(gpu).links)


def unregistered(machine: str, **how: int) -> dict[str, Any]:
    """A registration of the machine's GPUs, but for these fields."""
    fabric = load_machine(machine).gpus[0].fabric
    assert fabric is not None
    return {"fabric": structs.replace(fabric, **how)}


@pytest.mark.parametrize("machine", machine_names())
def test_the_driver_lets_the_pairs_use_nvlink_that_the_matrix_has_links_for(machine: str) -> None:
    seen = observed(machine)
    pairs = by_matrix(seen.snapshot)
    assert by_driver(seen) == (pairs if seen.samples else {})
    assert by_annotation(seen.snapshot) == by_metric(seen.snapshot) == pairs


@pytest.mark.parametrize("machine", ["hgx-h100", "hgx-h200", "hgx-b200", "gb200"])
def test_a_gpu_outside_its_fabric_or_in_mig_mode_has_no_peers_though_its_links_are_active(
    machine: str, tmp_path: Path
) -> None:
    outside = [unregistered(machine, state=2), unregistered(machine, status=999)]
    if len(load_machine(machine).gpus) == 8:
        outside += [unregistered(machine, state=1), MIG]

    seen = changed(tmp_path, machine, *outside)

    node = seen.snapshot
    apart = {gpu.bus_id for gpu in node.gpus[: len(outside)]}
    expected = {pair: not apart & set(pair) for pair in by_matrix(node)}
    assert by_matrix(node) == by_driver(seen) == by_annotation(node) == by_metric(node) == expected
    assert {sum(link.active is True for link in build.nvidia(gpu).links) for gpu in node.gpus} == {
        18
    }
    labels = decide_labels(node, LabelSettings()).values
    assert labels[keys.NVLINK_CLASS] == "switch"
    assert labels[keys.NVLINK_ISLAND] == str(len(node.gpus) - len(outside))


@pytest.mark.parametrize("change", [unregistered("hgx-h100", state=2), MIG])
def test_where_no_gpu_has_peers_the_node_has_no_nvlink(
    change: dict[str, Any], tmp_path: Path
) -> None:
    seen = changed(tmp_path, "hgx-h100", *[change] * 8)

    node = seen.snapshot
    labels = decide_labels(node, LabelSettings()).values
    assert (labels[keys.NVLINK_CLASS], labels[keys.NVLINK_ISLAND]) == ("none", "1")
    assert topology_of(node).fab == "none"
    assert set(topology_of(node).nv) == {"0"}
    assert not any(by_driver(seen).values())
    assert told("gpuscape_gpu_nvlinks_expected", node) == {}


def test_gpus_in_other_cliques_are_not_peers(tmp_path: Path) -> None:
    seen = changed(tmp_path, "gb200", unregistered("gb200", clique_id=4026))
    pairs = by_matrix(seen.snapshot)
    assert by_driver(seen) == pairs
    assert sum(pairs.values()) == 6


@pytest.mark.parametrize(
    ("machine", "active"),
    [("dgx-a100", [0, 12, 12]), ("a30-pair", [0, 0]), ("hgx-h100", [18, 18, 18])],
)
def test_mig_trains_links_off_on_ampere_only(
    machine: str, active: list[int], tmp_path: Path
) -> None:
    """At both ends of a bridge."""
    gpus = changed(tmp_path, machine, MIG).snapshot.gpus
    assert [sum(link.active is True for link in build.nvidia(gpu).links) for gpu in gpus][
        : len(active)
    ] == active
