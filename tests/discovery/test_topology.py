# SPDX-License-Identifier: Apache-2.0
"""The matrices, against link counts written by hand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.fabric_kind import FabricKind
from discovery.model import (
    Fabric,
    Gap,
    GpuSnapshot,
    GpuState,
    Mode,
    Nic,
    NvLink,
    PciFacts,
    Reason,
    Topology,
)
from discovery.nvml_terms import LinkPeer
from discovery.topology import (
    ancestor_level,
    largest_island,
    link_bytes_per_second,
    link_class,
    node_topology,
)
from tests import build

DGX1_V100 = (
    "X1122...",
    "1X21.2..",
    "12X2..1.",
    "212X...1",
    "2...X112",
    ".2..1X21",
    "..1.12X2",
    "...1212X",
)
"""NVLinks between the GPUs of a DGX-1 with V100; a dot is none."""
CLUSTER = "2b7a1c56-0000-0000-0000-000000000001"

Matrix = tuple[tuple[int | None, ...], ...]


def counts(rows: Sequence[str]) -> Matrix:
    """Rows of digits as numbers; X and dots are 0, a question mark is None."""
    return tuple(
        tuple(None if c == "?" else int(c) if c.isdigit() else 0 for c in row) for row in rows
    )


def to_gpus(row: str) -> tuple[NvLink, ...]:
    """Active links straight to other GPUs, as many to each as its digit says."""
    peers = [at for at, c in enumerate(row) if c.isdigit() for _ in range(int(c))]
    return tuple(
        NvLink(link=n, active=True, peer=LinkPeer.GPU, peer_bus_id=build.gpu(at).bus_id)
        for n, at in enumerate(peers)
    )


def meshed(rows: Sequence[str]) -> list[GpuSnapshot]:
    """GPUs that see these links to each other."""
    return [build.gpu(at, links=to_gpus(row)) for at, row in enumerate(rows)]


def ports(active: int, down: int = 0, peer: LinkPeer = LinkPeer.SWITCH) -> tuple[NvLink, ...]:
    """Links into something that has no bus id."""
    return tuple(
        NvLink(link=n, active=n < active, peer=peer if n < active else LinkPeer.UNKNOWN)
        for n in range(active + down)
    )


def linked(gpus: Sequence[GpuSnapshot]) -> Topology:
    """The topology of these GPUs, with nothing known of PCIe."""
    return node_topology(gpus, (), {})


def place(
    bus_id: str, *bridges: str, root: str | None = "pci0000:00", numa_node: int | None = None
) -> PciFacts:
    """Where a function sits."""
    return PciFacts(bus_id=bus_id, root=root, bridges=bridges, numa_node=numa_node)


# NVLink


def test_a_dgx1_is_a_mesh_with_its_published_link_counts() -> None:
    found = linked(meshed(DGX1_V100))

    assert found.nvlinks == counts(DGX1_V100)
    assert found.kind is FabricKind.MESH


def test_every_pair_on_an_nvswitch_has_all_links() -> None:
    found = linked([build.gpu(at, links=ports(18)) for at in range(8)])

    assert found.kind is FabricKind.SWITCH
    assert found.nvlinks == tuple(tuple(18 * (i != j) for j in range(8)) for i in range(8))


def test_through_a_switch_each_direction_counts_its_own_gpus_links() -> None:
    """GPU 1 has two of twelve links down: a pair with it is worth ten."""
    found = linked(
        [build.gpu(0, links=ports(12)), build.gpu(1, links=ports(10, down=2))],
    )

    assert found.nvlinks == ((0, 12), (10, 0))
    assert found.effective(0, 1) == found.effective(1, 0) == 10


def test_a_gpu_whose_switch_links_are_all_down_is_linked_to_none() -> None:
    found = linked([build.gpu(at, links=ports(9 if at else 0, down=9)) for at in range(3)])

    assert found.nvlinks == counts(("X..", ".X9", ".9X"))


def test_links_that_hide_their_far_end_are_taken_for_switch_links() -> None:
    """As in a virtual machine with GPUs passed through."""
    found = linked([build.gpu(at, links=ports(6, peer=LinkPeer.UNKNOWN)) for at in range(2)])

    assert (found.kind, found.nvlinks) == (FabricKind.SWITCH, ((0, 6), (6, 0)))


def test_a_far_end_named_but_of_unknown_kind_is_a_direct_link() -> None:
    far = [NvLink(link=0, active=True, peer_bus_id=build.gpu(1 - at).bus_id) for at in range(2)]

    found = linked([build.gpu(at, links=(far[at],)) for at in range(2)])

    assert (found.kind, found.nvlinks) == (FabricKind.BRIDGE, ((0, 1), (1, 0)))


def test_one_gpu_with_switch_links_but_no_partner_has_no_fabric_in_its_node() -> None:
    found = linked([build.gpu(0, links=ports(18))])

    assert (found.kind, found.nvlinks) == (FabricKind.NONE, ((0,),))


@pytest.mark.parametrize(
    ("peer", "peer_bus_id"),
    [
        pytest.param(LinkPeer.NPU, None, id="a POWER processor"),
        pytest.param(LinkPeer.GPU, "0000:ee:00.0", id="a GPU given to somebody else"),
        pytest.param(LinkPeer.GPU, None, id="a GPU that the driver does not name"),
    ],
)
def test_links_to_what_this_node_does_not_have_join_no_pair(
    peer: LinkPeer, peer_bus_id: str | None
) -> None:
    away = tuple(NvLink(link=n, active=True, peer=peer, peer_bus_id=peer_bus_id) for n in range(4))

    found = linked([build.gpu(0, links=away), build.gpu(1, links=away)])

    assert (found.kind, found.nvlinks) == (FabricKind.NONE, ((0, 0), (0, 0)))


@pytest.mark.parametrize(
    ("other", "linked_pairs"),
    [
        pytest.param({}, True, id="same clique"),
        pytest.param({"clique_id": 2}, False, id="another clique"),
        pytest.param({"cluster_uuid": CLUSTER[::-1]}, False, id="another cluster"),
    ],
)
def test_a_switch_cut_into_cliques_joins_gpus_of_one_clique_only(
    other: Mapping[str, Any], linked_pairs: bool
) -> None:
    fabric = Fabric(state=3, status=0, cluster_uuid=CLUSTER, clique_id=1)

    found = linked(
        [
            build.gpu(0, links=ports(9), fabric=fabric),
            build.gpu(1, links=ports(9), fabric=replace(fabric, **other)),
        ]
    )

    assert found.nvlinks == (counts(("X9", "9X")) if linked_pairs else counts(("X.", ".X")))


UNREGISTERED = (
    pytest.param({"state": 1}, id="registration not started"),
    pytest.param({"state": 2}, id="registration in progress"),
    pytest.param({"status": 999}, id="registration failed"),
)


@pytest.mark.parametrize("other", UNREGISTERED)
def test_a_gpu_that_is_not_registered_with_its_fabric_is_linked_to_none(
    other: Mapping[str, Any],
) -> None:
    """Its links train by themselves and show as active."""
    fabric = Fabric(state=3, status=0, cluster_uuid=CLUSTER, clique_id=1)
    each = (replace(fabric, clique_id=0, **other), fabric, fabric)

    found = linked([build.gpu(at, links=ports(9), fabric=one) for at, one in enumerate(each)])

    assert found.nvlinks == counts(("X..", ".X9", ".9X"))
    assert (found.kind, largest_island(found)) == (FabricKind.SWITCH, 2)


@pytest.mark.parametrize("other", UNREGISTERED)
def test_where_no_gpu_is_registered_there_is_no_fabric(other: Mapping[str, Any]) -> None:
    fabric = replace(Fabric(state=3, status=0, cluster_uuid=CLUSTER, clique_id=0), **other)

    found = linked([build.gpu(at, links=ports(9), fabric=fabric) for at in range(4)])

    assert (found.kind, largest_island(found)) == (FabricKind.NONE, 1)


def test_cliques_of_gpus_that_have_no_fabric_to_register_with_separate_nothing() -> None:
    """NVSwitches of Ampere and before: what the driver leaves in the other fields says nothing."""
    each = [Fabric(state=0, status=0, cluster_uuid=CLUSTER, clique_id=at) for at in range(2)]

    found = linked([build.gpu(at, links=ports(9), fabric=one) for at, one in enumerate(each)])

    assert found.nvlinks == counts(("X9", "9X"))


def test_gpus_that_have_no_fabric_to_register_with_keep_their_bridges() -> None:
    fabric = Fabric(state=0, status=0, cluster_uuid=str(uuid.UUID(int=0)), clique_id=0)
    rows = ("X4", "4X")

    found = linked([build.changed(gpu, fabric=fabric) for gpu in meshed(rows)])

    assert (found.kind, found.nvlinks) == (FabricKind.BRIDGE, counts(rows))


@pytest.mark.parametrize(
    "gpus", [meshed(("X44", "4X4", "44X")), [build.gpu(at, links=ports(4)) for at in range(3)]]
)
def test_a_gpu_in_mig_mode_is_linked_to_none_whatever_its_links_do(gpus: list[GpuSnapshot]) -> None:
    gpus[0] = build.changed(gpus[0], mig=Mode(current=True, pending=False))

    assert linked(gpus).nvlinks == counts(("X..", ".X4", ".4X"))


def test_a_pending_mig_mode_takes_no_links_yet() -> None:
    gpus = [build.gpu(at, links=ports(9), mig=Mode(current=False, pending=True)) for at in range(2)]

    assert linked(gpus).nvlinks == counts(("X9", "9X"))


@pytest.mark.parametrize("what", ["mig", "fabric"])
def test_a_gpu_that_did_not_answer_whether_it_can_reach_others_is_unknown_both_ways(
    what: str,
) -> None:
    gpus = [build.gpu(at, links=ports(9)) for at in range(3)]
    gpus[1] = build.lacking(gpus[1], what, Reason.FAILED)

    found = linked(gpus)

    assert found.nvlinks == counts(("X?9", "?X?", "9?X"))
    assert found.kind is FabricKind.SWITCH


def test_no_links_to_a_gpu_in_mig_mode_even_where_the_other_is_unknown() -> None:
    gpus = [
        build.gpu(0, links=ports(9), mig=Mode(current=True, pending=True)),
        build.gpu(1, state=GpuState.HUNG),
    ]

    assert linked(gpus).nvlinks == counts(("X.", ".X"))


def test_bridged_pairs_are_bridges_and_not_a_mesh() -> None:
    rows = ("X4..", "4X..", "..X4", "..4X")

    found = linked(meshed(rows))

    assert (found.kind, found.nvlinks) == (FabricKind.BRIDGE, counts(rows))


def test_a_gpu_with_two_partners_makes_it_a_mesh() -> None:
    assert linked(meshed(("X22", "2X2", "22X"))).kind is FabricKind.MESH


def test_a_link_down_at_one_end_is_seen_from_the_other_end_only() -> None:
    rows = ("X3", "4X")

    found = linked(meshed(rows))

    assert found.nvlinks == counts(rows)
    assert found.effective(0, 1) == 3


def test_inactive_links_count_for_nothing() -> None:
    peer = build.gpu(1).bus_id
    down = NvLink(link=0, active=False, peer=LinkPeer.GPU, peer_bus_id=peer)

    found = linked([build.gpu(0, links=(down,)), build.gpu(1, links=to_gpus("1X"))])

    assert (found.nvlinks, found.kind) == (((0, 0), (1, 0)), FabricKind.NONE)


@pytest.mark.parametrize(
    "facts",
    [
        {"state": GpuState.LOST},
        {"state": GpuState.HUNG},
        {"state": GpuState.UNREADABLE},
        {"gaps": (Gap(what="links", reason=Reason.FAILED, source="nvmlDeviceGetNvLinkState"),)},
    ],
)
def test_a_gpu_that_cannot_tell_its_links_is_unknown_both_ways(facts: Mapping[str, Any]) -> None:
    gpus = meshed(("X12", "1X1", "21X"))
    gpus[1] = build.gpu(1, **facts)

    found = linked(gpus)

    assert found.nvlinks == counts(("X?2", "?X?", "2?X"))
    assert found.kind is FabricKind.BRIDGE


def test_a_gpu_without_nvlink_has_none_to_all_others() -> None:
    gap = Gap(what="links", reason=Reason.UNSUPPORTED, source="nvmlDeviceGetNvLinkState")
    gpus = [build.gpu(0, gaps=(gap,)), *(build.gpu(at, links=ports(18)) for at in (1, 2))]

    found = linked(gpus)

    assert found.nvlinks == ((0, 0, 0), (0, 0, 18), (0, 18, 0))


def test_one_unreadable_port_leaves_the_links_that_could_be_read() -> None:
    gpus = meshed(("X2", "3X"))
    gap = Gap(what="links", reason=Reason.FAILED, source="nvmlDeviceGetNvLinkState")
    gpus[0] = build.gpu(0, links=build.nvidia(gpus[0]).links, gaps=(gap,))

    assert linked(gpus).effective(0, 1) == 2


def test_no_gpus_make_an_empty_topology() -> None:
    assert linked([]) == Topology()


# PCIe


def test_under_downstream_ports_of_one_switch_is_one_switch() -> None:
    a = place("0000:04:00.0", "0000:00:01.0", "0000:01:00.0", "0000:02:08.0")
    b = place("0000:05:00.0", "0000:00:01.0", "0000:01:00.0", "0000:02:10.0")

    assert ancestor_level(a, b) == 1


def test_functions_of_one_card_meet_below_one_port() -> None:
    a, b = place("0000:04:00.0", "0000:00:01.0"), place("0000:04:00.1", "0000:00:01.0")

    assert ancestor_level(a, b) == 1


@pytest.mark.parametrize(
    "below",
    [
        pytest.param(("0000:04:00.0", "0000:05:00.0"), id="switch"),
        pytest.param(("0000:04:00.0",), id="single bridge"),
    ],
)
def test_a_second_switch_on_either_side_is_several_switches(below: tuple[str, ...]) -> None:
    """The NIC sits on the upper switch itself, the GPU below something more on it."""
    upper = ("0000:00:01.0", "0000:01:00.0")
    nic = place("0000:03:00.0", *upper, "0000:02:00.0")
    gpu = place("0000:06:00.0", *upper, "0000:02:08.0", *below)

    assert ancestor_level(nic, gpu) == ancestor_level(gpu, nic) == 2


def test_own_root_ports_on_one_root_bus_are_one_host_bridge() -> None:
    a, b = place("0000:04:00.0", "0000:00:01.0"), place("0000:05:00.0", "0000:00:02.0")

    assert ancestor_level(a, b) == 3


def test_directly_on_the_root_bus_as_in_a_virtual_machine_is_one_host_bridge() -> None:
    assert ancestor_level(place("0000:00:05.0"), place("0000:00:06.0")) == 3


@pytest.mark.parametrize(
    ("here", "there", "level"),
    [(0, 0, 4), (0, 1, 5), (None, 0, None), (0, None, None), (None, None, None)],
)
def test_across_host_bridges_the_numa_node_decides(
    here: int | None, there: int | None, level: int | None
) -> None:
    a = place("0000:17:00.0", root="pci0000:16", numa_node=here)
    b = place("0000:3b:00.0", root="pci0000:3a", numa_node=there)

    assert ancestor_level(a, b) == level


@pytest.mark.parametrize(("numa", "level"), [(0, None), (1, 5)])
def test_without_a_place_in_the_tree_only_another_numa_node_is_certain(
    numa: int, level: int | None
) -> None:
    a = place("0000:17:00.0", root=None, numa_node=0)
    b = place("0000:18:00.0", root=None, numa_node=numa)

    assert ancestor_level(a, b) == level


def plx_box() -> list[PciFacts]:
    """Eight GPUs in pairs on PLX switches, two switches on each socket's host bridge."""
    return [
        PciFacts(
            bus_id=build.gpu(at).bus_id,
            numa_node=at // 4,
            root=f"pci0000:{0x80 * (at // 4):02x}",
            bridges=(f"0000:00:{at // 2:02x}.0", f"0000:0{at // 2}:00.0", f"0000:09:{at:02x}.0"),
        )
        for at in range(8)
    ]


def test_an_eight_gpu_plx_box_shows_pairs_halves_and_sockets() -> None:
    paths = {facts.bus_id: facts for facts in plx_box()}

    found = node_topology([build.gpu(at) for at in range(8)], (), paths)

    assert found.pcie == counts(
        (
            "X1335555",
            "1X335555",
            "33X15555",
            "331X5555",
            "5555X133",
            "55551X33",
            "555533X1",
            "5555331X",
        )
    )
    assert found.kind is FabricKind.NONE


def test_between_gpus_nvml_wins_whichever_end_told_it() -> None:
    """GPU 1 sits on GPU 0's board, which sysfs cannot tell; GPU 2 did not answer."""
    bus_ids = [build.gpu(at).bus_id for at in range(3)]
    gpus = [build.gpu(0), build.gpu(1, ancestors=((bus_ids[0], 0),)), build.gpu(2)]
    paths = {bus_id: place(bus_id, "0000:00:01.0") for bus_id in bus_ids}

    assert node_topology(gpus, (), paths).pcie == counts(("X01", "0X1", "11X"))


def test_nics_are_rows_after_the_gpus() -> None:
    gpus = [build.gpu(0), build.gpu(1)]
    nics = [Nic(name="mlx5_0", bus_id="0000:18:00.0"), Nic(name="mlx5_1", bus_id="0000:9a:00.0")]
    switch = ("0000:00:01.0", "0000:01:00.0")
    paths = {
        gpus[0].bus_id: place(gpus[0].bus_id, *switch, "0000:02:00.0", numa_node=0),
        gpus[1].bus_id: place(gpus[1].bus_id, "0000:00:02.0", numa_node=0),
        "0000:18:00.0": place("0000:18:00.0", *switch, "0000:02:04.0", numa_node=0),
        "0000:9a:00.0": place("0000:9a:00.0", root="pci0000:98", numa_node=1),
    }

    found = node_topology(gpus, nics, paths)

    assert found.nics == ("mlx5_0", "mlx5_1")
    assert found.pcie == counts(("X315", "3X35", "13X5", "555X"))


def across(
    node_of: Sequence[int | None], answers: Mapping[tuple[int, int], int], nics: int
) -> Topology:
    """Devices that are each on a host bridge of their own, the last of them NICs.

    ``answers``: what NVML says of pairs of GPUs; ``node_of``: the NUMA node of each device.
    """
    gpus = len(node_of) - nics
    bus = [build.gpu(at).bus_id for at in range(len(node_of))]
    seen = [
        build.gpu(
            at, ancestors=tuple((bus[j], level) for (i, j), level in answers.items() if i == at)
        )
        for at in range(gpus)
    ]
    paths = {
        bus[at]: place(bus[at], root=f"pci0000:{at:02x}", numa_node=node)
        for at, node in enumerate(node_of)
    }
    return node_topology(
        seen, [Nic(name=f"nic{at}", bus_id=bus[at]) for at in range(gpus, len(bus))], paths
    )


@pytest.mark.parametrize("level", [4, 5])
def test_nics_are_as_far_across_host_bridges_as_nvml_has_the_gpus_of_their_node(level: int) -> None:
    """GPU 0, GPU 1 and two NICs of one node."""
    found = across((0, 0, 0, 0), {(0, 1): level}, nics=2)

    assert [row[2:] for row in found.pcie[:3]] == [(level, level), (level, level), (0, level)]


def test_a_node_without_two_gpus_has_the_measure_of_the_others() -> None:
    """Node 1 has one GPU and one NIC; node 2, of NICs alone, two."""
    found = across((0, 0, 1, 1, 2, 2), {(0, 1): 5, (0, 2): 5, (1, 2): 5}, nics=3)

    assert (found.pcie[2][3], found.pcie[4][5]) == (5, 5)


@pytest.mark.parametrize(
    ("answers", "level"),
    [
        pytest.param({(0, 1): 4, (2, 3): 5}, 4, id="nodes that differ are no measure for a third"),
        pytest.param({}, 4, id="NVML did not answer"),
        pytest.param({(0, 1): 3, (2, 3): 3}, 4, id="NVML sees one host bridge"),
    ],
)
def test_without_a_measure_the_numa_node_decides(
    answers: Mapping[tuple[int, int], int], level: int
) -> None:
    """Two GPUs in each of nodes 0 and 1, two NICs in node 2."""
    found = across((0, 0, 1, 1, 2, 2), answers, nics=2)

    assert found.pcie[4][5] == level


def test_each_node_keeps_its_own_measure() -> None:
    found = across((0, 0, 1, 1, 0, 1), {(0, 1): 4, (2, 3): 5}, nics=2)

    assert (found.pcie[0][4], found.pcie[2][5]) == (4, 5)


def test_gpus_of_one_node_that_nvml_has_at_different_levels_are_no_measure() -> None:
    found = across((0, 0, 0, 0), {(0, 1): 4, (0, 2): 5, (1, 2): 5}, nics=1)

    assert found.pcie[0][3] == 4


@pytest.mark.parametrize(
    ("answers", "level"), [({(0, 1): 4}, 4), ({(0, 1): 4, (0, 2): 5}, None), ({}, None)]
)
def test_devices_of_unknown_nodes_have_the_measure_of_such_gpus_alone(
    answers: Mapping[tuple[int, int], int], level: int | None
) -> None:
    """As on a host whose firmware names no node; with two sockets, nothing is certain there."""
    found = across((None, None, None, None), answers, nics=1)

    assert found.pcie[0][3] == level


def test_a_measure_within_a_node_changes_nothing_between_nodes() -> None:
    found = across((0, 0, 1), {(0, 1): 4}, nics=1)

    assert found.pcie[0][2] == 5


def test_a_device_the_host_does_not_show_has_an_unknown_place() -> None:
    gpus = [build.gpu(0), build.gpu(1)]

    found = node_topology(gpus, (), {gpus[0].bus_id: place(gpus[0].bus_id)})

    assert found.pcie == counts(("X?", "?X"))


# what follows


@pytest.mark.parametrize(
    ("rows", "size"),
    [
        pytest.param((), 0, id="no GPU"),
        pytest.param(("X",), 1, id="one GPU"),
        pytest.param(("X.", ".X"), 1, id="no links"),
        pytest.param(("X4..", "4X..", "..X4", "..4X"), 2, id="bridged pairs"),
        pytest.param(("X1..", "1X1.", ".1X1", "..1X"), 2, id="a chain is no island"),
        pytest.param(DGX1_V100, 4, id="DGX-1: a quad, though all eight are connected"),
        pytest.param(("X1.", ".X1", "11X"), 2, id="links of one direction do not join"),
        pytest.param(("X?1", "?X?", "1?X"), 2, id="unknown links do not join"),
    ],
)
def test_the_largest_island_is_pairwise_linked(rows: Sequence[str], size: int) -> None:
    found = Topology(gpus=tuple(map(str, range(len(rows)))), nvlinks=counts(rows))

    assert largest_island(found) == size


@st.composite
def graphs(draw: st.DrawFn) -> Matrix:
    """Up to six GPUs, each pair linked or not."""
    n = draw(st.integers(0, 6))
    linked = {(i, j): draw(st.booleans()) for i in range(n) for j in range(i)}
    return tuple(
        tuple(int(linked.get((max(i, j), min(i, j)), False)) for j in range(n)) for i in range(n)
    )


@given(graphs())
def test_the_largest_island_is_the_best_of_all_subsets(rows: Matrix) -> None:
    places = range(len(rows))
    subsets = [[i for i in places if mask >> i & 1] for mask in range(1 << len(rows))]
    best = max(len(s) for s in subsets if all(rows[i][j] for i in s for j in s if i != j))

    assert largest_island(Topology(gpus=tuple(map(str, places)), nvlinks=rows)) == best


def test_a_link_rate_is_that_of_the_slowest_active_link() -> None:
    def link(n: int, rate: int | None, active: bool = True) -> NvLink:
        return NvLink(link=n, active=active, bytes_per_second=rate)

    gpus = [
        build.gpu(0, links=(link(0, 25), link(1, 20), link(2, None), link(3, 5, active=False))),
        build.gpu(1, links=(link(0, None),)),
        build.gpu(2),
    ]

    assert link_bytes_per_second(gpus) == (20, None, None)


@pytest.mark.parametrize(
    ("level", "word"),
    [(0, "PIX"), (1, "PIX"), (2, "PXB"), (3, "PHB"), (4, "NODE"), (5, "SYS"), (None, "N/A")],
)
def test_pcie_levels_have_the_words_of_nvidia_smi(level: int | None, word: str) -> None:
    found = Topology(gpus=("a", "b"), nvlinks=((0, 0), (0, 0)), pcie=((0, level), (level, 0)))

    assert link_class(found, 0, 1) == word


def test_nvlinks_win_over_pcie_and_unknown_ones_over_nothing() -> None:
    """GPUs 0 and 1 have four links one way and three back; GPU 2 is lost; then a NIC."""
    found = Topology(
        gpus=("a", "b", "c"),
        nics=("mlx5_0",),
        nvlinks=counts(("X4?", "3X?", "??X")),
        pcie=counts(("X115", "1X15", "11X5", "555X")),
    )

    assert [[link_class(found, i, j) for j in range(4)] for i in range(4)] == [
        ["X", "NV3", "N/A", "SYS"],
        ["NV3", "X", "N/A", "SYS"],
        ["N/A", "N/A", "X", "SYS"],
        ["SYS", "SYS", "SYS", "X"],
    ]
