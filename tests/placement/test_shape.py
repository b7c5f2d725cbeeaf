# SPDX-License-Identifier: Apache-2.0
"""What scoring reads out of a topology annotation."""

from __future__ import annotations

from typing import Any

import msgspec

from api.fabric_kind import FabricKind
from api.topology_annotation import NicLevels, TopologyAnnotation
from placement.shape import Shape, shape


def read(**facts: Any) -> Shape:  # any of the annotation's
    """The shape of three GPUs, of which the first two have two NVLinks and share a switch."""
    plain = TopologyAnnotation(
        v=1,
        gen="0" * 10,
        n=3,
        fab=FabricKind.BRIDGE,
        lbw=(25,),
        nv="200",
        pc="155",
        numa=(0, 0, -1),
        ids=("",) * 3,
        bus=("",) * 3,
        nic=(NicLevels("mlx5_0", "", "135"),),
    )
    return shape(msgspec.structs.replace(plain, **facts))


def test_points_are_those_of_the_pcie_level_and_a_hundred_for_each_nvlink() -> None:
    """go-gpuallocator 0.5.0: one switch 50, across CPUs 10."""
    assert read().points == ((0, 250, 10), (250, 0, 10), (10, 10, 0))


def test_links_through_nvswitch_have_speed_but_no_points() -> None:
    seen = read(fab=FabricKind.SWITCH)
    assert (seen.points[0][1], seen.gbps[0][1], seen.nvlinks[0][1], seen.switched) == (
        50,
        50,
        2,
        True,
    )


def test_more_than_18_links_have_no_more_points() -> None:
    assert read(nv="Z00").points[0][1] == 1850


def test_a_pair_is_as_fast_as_its_slower_end_s_links() -> None:
    assert read(lbw=(25, 20, 25)).gbps[0][1] == 40


def test_links_of_which_none_tells_the_speed_are_faster_than_pcie_still() -> None:
    assert read(lbw=(0,)).gbps[0][1] == 50


def test_without_nvlinks_the_nearer_pair_is_faster() -> None:
    near = [read(nv="000", pc=f"{level}55").gbps[0][1] for level in range(6)]
    assert near == sorted(near, reverse=True)
    assert len(set(near)) == 6
    assert read(nv="100").gbps[0][1] > near[0]


def test_numa_nodes_and_nics_are_taken_over() -> None:
    assert (read().numa, read().nics) == ((0, 0, -1), ((1, 3, 5),))
