# SPDX-License-Identifier: Apache-2.0
"""NVLink class, largest island and fabric clique."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.fabric_kind import FabricKind
from discovery.model import Fabric, GpuSnapshot, NodeSnapshot, Reason, Topology
from labelers.decision import Absent, Decision, Keep, Value
from labelers.diff import applied
from labelers.groups.topology_labels import link_labels
from labelers.label_settings import LabelSettings
from tests import build

RACK = "0a1b2c3d-0000-4000-8000-0123456789ab"
NOWHERE = "00000000-0000-0000-0000-000000000000"
CLIQUE = "nvidia.com/gpu.clique"


def fabric(state: int = 3, status: int = 0, rack: str = RACK, clique: int = 1) -> Fabric:
    return Fabric(state=state, status=status, cluster_uuid=rack, clique_id=clique)


def decided(node: NodeSnapshot) -> dict[str, Decision]:
    return dict(link_labels(node, LabelSettings()))


def clique_of(*gpus: GpuSnapshot) -> Decision:
    return decided(build.node(gpus))[CLIQUE]


def linked(kind: FabricKind, links: tuple[tuple[int | None, ...], ...]) -> NodeSnapshot:
    gpus = [build.gpu(at) for at in range(len(links))]
    topology = Topology(gpus=tuple(gpu.bus_id for gpu in gpus), kind=kind, nvlinks=links)
    return build.node(gpus, topology=topology)


def test_gpus_in_one_fabric_name_its_cluster_and_clique() -> None:
    assert clique_of(
        build.gpu(0, fabric=fabric(clique=32766)), build.gpu(1, fabric=fabric(clique=32766))
    ) == Value(text=f"{RACK}.32766")


def test_gpus_outside_the_fabric_are_passed_over() -> None:
    inside, outside = build.gpu(0, fabric=fabric()), build.gpu(1, fabric=fabric(state=0))

    assert clique_of(inside, outside, build.silent(2)) == Value(text=f"{RACK}.1")


@pytest.mark.parametrize("other", [fabric(clique=2), fabric(rack=RACK.replace("0a", "ff"))])
def test_gpus_that_disagree_name_no_clique(other: Fabric) -> None:
    assert isinstance(clique_of(build.gpu(0, fabric=fabric()), build.gpu(1, fabric=other)), Absent)


@pytest.mark.parametrize(
    "outside", [fabric(state=0), fabric(state=1), fabric(status=999), fabric(rack=NOWHERE)]
)
def test_a_gpu_known_to_be_in_no_fabric_has_no_clique(outside: Fabric) -> None:
    assert isinstance(clique_of(build.gpu(fabric=outside)), Absent)


@pytest.mark.parametrize(
    "others",
    [
        (),
        (build.gpu(1, fabric=fabric(state=0)),),
        (build.gpu(1, fabric=fabric(status=999)), build.gpu(2, fabric=None)),
    ],
)
def test_a_registration_under_way_removes_nothing(others: tuple[GpuSnapshot, ...]) -> None:
    assert isinstance(clique_of(build.gpu(fabric=fabric(state=2)), *others), Keep)


@pytest.mark.parametrize(("reason", "kind"), [(Reason.UNSUPPORTED, Absent), (Reason.FAILED, Keep)])
def test_a_clique_goes_only_when_no_gpu_knows_fabrics(reason: Reason, kind: type) -> None:
    assert isinstance(clique_of(build.lacking(build.gpu(), "fabric", reason)), kind)


@pytest.mark.parametrize(
    ("kind", "links", "island"),
    [
        (FabricKind.NONE, ((0, 0), (0, 0)), "1"),
        (FabricKind.BRIDGE, ((0, 4, 0), (4, 0, 0), (0, 0, 0)), "2"),
        (FabricKind.SWITCH, ((0, 18, 18), (18, 0, 18), (18, 18, 0)), "3"),
    ],
)
def test_class_and_largest_island_are_the_topologys(
    kind: FabricKind, links: tuple[tuple[int | None, ...], ...], island: str
) -> None:
    labels = decided(linked(kind, links))

    assert labels["gpuscape.io/nvlink.class"] == Value(text=kind.value)
    assert labels["gpuscape.io/nvlink.island"] == Value(text=island)


def test_links_that_are_not_known_leave_class_and_island_as_they_were() -> None:
    """A node without the labels gets what is known, once all GPUs had time to answer."""
    node = linked(FabricKind.SWITCH, ((0, 18, None), (18, 0, None), (None, None, 0)))
    there = {"gpuscape.io/nvlink.class": "switch", "gpuscape.io/nvlink.island": "3"}

    assert applied(there, link_labels(node, LabelSettings())) == there
    assert applied({}, link_labels(node, LabelSettings())) == {
        "gpuscape.io/nvlink.class": "switch",
        "gpuscape.io/nvlink.island": "2",
    }
    assert applied({}, link_labels(replace(node, settling=True), LabelSettings())) == {}


def test_no_nvlink_is_said_only_when_every_gpu_told_its_links() -> None:
    labels = decided(linked(FabricKind.NONE, ((0, None), (None, 0))))

    assert isinstance(labels["gpuscape.io/nvlink.class"], Keep)
    assert isinstance(labels["gpuscape.io/nvlink.island"], Keep)
