# SPDX-License-Identifier: Apache-2.0
"""Links as go-gpuallocator sees them: by its numbers, and without what it does not see."""

from __future__ import annotations

from dataclasses import replace

from discovery.model import NvLink
from discovery.nvml_terms import LinkPeer
from tests import build
from tests.kubelet_nodes.links import link_types


def links(to: str | None, count: int, peer: LinkPeer = LinkPeer.GPU) -> tuple[NvLink, ...]:
    """Active NVLinks whose far end is there."""
    return tuple(
        NvLink(link=number, active=True, peer=peer, peer_bus_id=to) for number in range(count)
    )


A, B = build.gpu(0).bus_id, build.gpu(1).bus_id
ACROSS_CPUS, THREE_LINKS, EIGHTEEN_LINKS = 1, 9, 24


def test_direct_nvlinks_count_beside_the_pcie_path() -> None:
    node = build.node([build.gpu(0, links=links(B, 3)), build.gpu(1, links=links(A, 3))])
    pair = (ACROSS_CPUS, THREE_LINKS)
    assert link_types(node) == (((), pair), (pair, ()))


def test_nvlinks_through_a_switch_are_not_seen() -> None:
    node = build.node([build.gpu(at, links=links(None, 12, LinkPeer.SWITCH)) for at in (0, 1)])
    assert link_types(node) == (((), (ACROSS_CPUS,)), ((ACROSS_CPUS,), ()))


def test_each_direction_is_as_its_own_end_sees_it() -> None:
    node = build.node([build.gpu(0, links=links(B, 3)), build.gpu(1)])
    assert link_types(node) == (((), (ACROSS_CPUS, THREE_LINKS)), ((ACROSS_CPUS,), ()))


def test_a_link_that_is_down_is_none() -> None:
    down = tuple(replace(link, active=False) for link in links(B, 3))
    node = build.node([build.gpu(0, links=down), build.gpu(1)])
    assert link_types(node)[0][1] == (ACROSS_CPUS,)


def test_more_links_than_the_library_has_types_for_are_its_most() -> None:
    node = build.node([build.gpu(0, links=links(B, 20)), build.gpu(1)])
    assert link_types(node)[0][1] == (ACROSS_CPUS, EIGHTEEN_LINKS)


def test_nearer_pcie_paths_have_higher_numbers_and_an_unknown_one_has_none() -> None:
    node = build.node([build.gpu(at) for at in range(3)])
    pcie = ((0, 0, 4), (0, 0, None), (4, None, 0))
    found = link_types(replace(node, topology=replace(node.topology, pcie=pcie)))
    assert (found[0][1], found[0][2], found[1][2]) == ((6,), (2,), ())
