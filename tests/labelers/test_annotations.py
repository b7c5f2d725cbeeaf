# SPDX-License-Identifier: Apache-2.0
"""Which annotations a node gets, and when they stay as they are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import keys, topology_annotation
from discovery.gpu_counts import GpuCounts
from discovery.model import Driver, GpuState, Nic, NodeSnapshot, Reason
from labelers.annotations import node_annotations, topology_of
from labelers.decision import Absent, Keep, Value
from labelers.diff import applied
from tests import build

BOOT = "5e6ea2c4-4cb4-4b0c-9a30-1d1b6a2a7b11"


def test_a_node_whose_gpus_all_answer_gets_its_topology() -> None:
    snapshot = build.node(gpus=(build.gpu(0), build.gpu(1)))
    topology = Value(text=topology_annotation.encode(topology_of(snapshot)))
    assert node_annotations(snapshot, BOOT)[keys.TOPOLOGY] == topology


def with_nics(count: int, gpus: int = 8) -> NodeSnapshot:
    """GPUs and NICs, of which each tenth is at one switch with all GPUs and the others far."""
    node = build.node([build.gpu(at) for at in range(gpus)])
    nics = tuple(
        Nic(name=f"mlx5_{at}", bus_id=f"0001:{at:02x}:00.0", numa_node=at % 2)
        for at in range(count)
    )
    size = gpus + count
    pcie = tuple(
        tuple(1 if max(i, j) >= gpus and (max(i, j) - gpus) % 10 == 0 else 5 for j in range(size))
        for i in range(size)
    )
    topology = replace(node.topology, nics=tuple(nic.name for nic in nics), pcie=pcie)
    return replace(node, host=replace(node.host, nics=nics), topology=topology)


def room(node: NodeSnapshot) -> int:
    """Bytes for the topology, next to the other annotation of an idle Node."""
    known = node_annotations(node, BOOT)[keys.KNOWN_GPUS]
    assert isinstance(known, Value)
    return 4096 - len(known.text)


def test_of_8_gpus_and_100_nics_the_gpus_and_the_nearest_nics_are_published() -> None:
    node = with_nics(100)
    decision = node_annotations(node, BOOT)[keys.TOPOLOGY]
    assert isinstance(decision, Value)
    assert len(decision.text.encode()) <= room(node)
    found = topology_annotation.decode(decision.text)
    assert found is not None
    names = {nic.name for nic in found.nic}
    assert names >= {f"mlx5_{at}" for at in range(0, 100, 10)}
    assert (found.n, found.more) == (8, 100 - len(names))
    assert decision.note == (
        f"{found.more} of 100 RDMA NICs are left out, the farthest from all GPUs: it may have"
        f" {room(node)} bytes"
    )


@given(st.integers(0, 120), st.integers(1, 16))
def test_no_nic_is_left_out_that_has_room(nics: int, gpus: int) -> None:
    """One NIC more, of the size of the largest, would not fit."""
    node = with_nics(nics, gpus)
    found, most = topology_of(node), room(node)
    size = len(topology_annotation.encode(found))
    entry = len(f'["mlx5_119","0001:63:00.0","{"5" * gpus}"],')
    assert size <= most
    assert len(found.nic) + found.more == nics
    assert not found.more or size + entry + len("9") > most


def test_what_the_state_refers_to_is_the_topology_that_is_published() -> None:
    snapshot = with_nics(100)
    decision = node_annotations(snapshot, BOOT)[keys.TOPOLOGY]
    assert isinstance(decision, Value)
    assert json.loads(decision.text)["gen"] == topology_of(snapshot).gen


def test_a_whole_topology_has_no_note() -> None:
    decision = node_annotations(with_nics(12), BOOT)[keys.TOPOLOGY]
    assert isinstance(decision, Value)
    assert (decision.note, json.loads(decision.text).get("more")) == ("", None)


SILENT = build.silent(1, GpuState.HUNG)
WITH_SILENT = build.node(gpus=(build.gpu(0), SILENT))


def written(snapshot: NodeSnapshot, on_node: str | None) -> str | None:
    """What the Node has after the agent saw this snapshot."""
    before = {} if on_node is None else {keys.TOPOLOGY: on_node}
    return applied(before, node_annotations(snapshot, BOOT)).get(keys.TOPOLOGY)


def test_a_gpu_that_does_not_answer_leaves_the_topology_as_it_was_and_is_named() -> None:
    assert written(WITH_SILENT, "whatever it was") == "whatever it was"
    decision = node_annotations(WITH_SILENT, BOOT)[keys.TOPOLOGY]
    assert isinstance(decision, Keep)
    assert SILENT.bus_id in decision.reason


def test_a_node_without_topology_gets_what_is_known_and_what_is_not_is_marked() -> None:
    found = topology_annotation.decode(written(WITH_SILENT, None) or "")
    assert found is not None
    assert (found.n, found.miss, found.bus) == (2, (1,), ("0000:10:00.0", SILENT.bus_id))


def test_a_node_without_topology_gets_none_while_gpus_may_yet_answer() -> None:
    assert written(replace(WITH_SILENT, settling=True), None) is None


@pytest.mark.parametrize("what", ["links", "fabric", "mig", "uuid"])
def test_one_fact_that_was_never_read_is_not_published_as_nothing(what: str) -> None:
    gpus = (build.gpu(0), build.lacking(build.gpu(1), what, Reason.FAILED))
    snapshot = build.node(gpus=gpus)
    assert written(snapshot, "whatever it was") == "whatever it was"
    found = topology_annotation.decode(written(snapshot, None) or "")
    assert found is not None
    assert found.miss == (1,)


def test_without_a_driver_the_topology_stays() -> None:
    assert isinstance(node_annotations(build.node(driver=Driver()), BOOT)[keys.TOPOLOGY], Keep)


def test_a_node_without_gpus_has_no_topology() -> None:
    assert isinstance(node_annotations(build.node(), BOOT)[keys.TOPOLOGY], Absent)


def test_the_next_agent_gets_the_boot_and_every_gpu_silent_ones_too() -> None:
    counts = GpuCounts(sysfs=2, nvml=3, unaddressed=1)
    decision = node_annotations(replace(WITH_SILENT, counts=counts), BOOT)[keys.KNOWN_GPUS]
    assert isinstance(decision, Value)
    bus = ("0000:10:00.0", SILENT.bus_id)
    assert json.loads(decision.text) == {"v": 1, "boot": BOOT, "n": 3, "bus": list(bus)}


@pytest.mark.parametrize(
    ("snapshot", "boot"),
    [
        (replace(WITH_SILENT, driver=Driver(), gpus=()), BOOT),
        (WITH_SILENT, ""),
        (replace(WITH_SILENT, counts=GpuCounts(nvml=2, unaddressed=1, former=3)), BOOT),
        (build.node(counts=GpuCounts(sysfs=None, nvml=None, why_uncounted="why")), BOOT),
    ],
    ids=["no driver", "no boot id", "an earlier boot's number is not replaced", "no count"],
)
def test_what_the_next_agent_gets_stays_while_no_number_of_this_boot_is_known(
    snapshot: NodeSnapshot, boot: str
) -> None:
    decision = node_annotations(snapshot, boot)[keys.KNOWN_GPUS]
    assert isinstance(decision, Keep)
    assert decision.otherwise is None


def test_a_node_without_gpus_has_nothing_for_its_next_agent() -> None:
    node = replace(WITH_SILENT, gpus=())
    assert isinstance(node_annotations(node, BOOT)[keys.KNOWN_GPUS], Absent)
