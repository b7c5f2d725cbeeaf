# SPDX-License-Identifier: Apache-2.0
"""Links between devices as series, and the fabric of each GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovery.model import Fabric, GpuState, NodeSnapshot
from tests import build
from tests.exporters.gpuscape_series import linked, told, value

CLUSTER = "11111111-2222-3333-4444-555555555555"


def fabric(state: int = 3, status: int = 0, mask: int | None = None) -> Fabric:
    return Fabric(state=state, status=status, cluster_uuid=CLUSTER, clique_id=7, health_mask=mask)


def matrix(name: str, node: NodeSnapshot) -> dict[tuple[str, str], float]:
    """Index of a GPU and of its peer to the number."""
    found = told(name, node)
    return {
        (dict(labels)["index"], dict(labels)["peer_index"]): number
        for labels, number in found.items()
    }


def test_each_pair_is_told_in_both_orders_with_what_both_ends_see() -> None:
    topology = linked([[0, 4, 0], [3, 0, None], [0, None, 0]])
    gpus = [build.gpu(at) for at in range(3)]

    found = matrix("gpuscape_topology_nvlinks", build.node(gpus, topology=topology))

    assert found == {("0", "1"): 3, ("1", "0"): 3, ("0", "2"): 0, ("2", "0"): 0}


def test_the_same_numbers_come_as_rows() -> None:
    """A column for each other GPU by its index; none of what is not known."""
    plain = linked([[0, 4, 0], [3, 0, None], [0, None, 0]])
    levels = ((0, 3, 1, 4), (3, 0, None, 5), (1, None, 0, 2), (4, 5, 2, 0))
    gpus = [replace(build.gpu(at), index=index) for at, index in enumerate((0, 10, 1))]
    node = build.node(gpus, topology=replace(plain, nics=("mlx5_0",), pcie=levels))

    assert told("gpuscape_topology_nvlinks_row", node) == {
        (("index", "0"), ("to_01", "0"), ("to_10", "3")): 1,
        (("index", "1"), ("to_00", "0")): 1,
        (("index", "10"), ("to_00", "3")): 1,
    }
    assert told("gpuscape_topology_pcie_row", node) == {
        (("index", "0"), ("to_01", "1"), ("to_10", "3")): 1,
        (("index", "1"), ("to_00", "1")): 1,
        (("index", "10"), ("to_00", "3")): 1,
    }
    assert told("gpuscape_topology_nic_row", node) == {
        (("nic", "mlx5_0"), ("to_00", "4"), ("to_01", "2"), ("to_10", "5")): 1
    }


def test_a_pair_is_named_by_both_gpus() -> None:
    gpus = [build.gpu(0), build.gpu(1)]

    labels, _ = told("gpuscape_topology_nvlinks", build.node(gpus, topology=linked([[0, 1]] * 2)))

    assert dict(labels)["peer_uuid"] == gpus[1].uuid
    assert dict(labels)["peer_pci_bus_id"] == gpus[1].bus_id


def test_pcie_levels_are_told_to_gpus_and_nics() -> None:
    plain = build.unlinked([build.gpu(at).bus_id for at in range(2)])
    pcie = ((0, 3, 1, 4), (3, 0, None, 5), (1, None, 0, 2), (4, 5, 2, 0))
    topology = replace(plain, nics=("mlx5_0", "mlx5_1"), pcie=pcie)
    node = build.node([build.gpu(0), build.gpu(1)], topology=topology)

    assert matrix("gpuscape_topology_pcie_level", node) == {("0", "1"): 3, ("1", "0"): 3}
    assert told("gpuscape_topology_nic_pcie_level", node) == {
        (("index", "0"), ("nic", "mlx5_0")): 1,
        (("index", "0"), ("nic", "mlx5_1")): 4,
        (("index", "1"), ("nic", "mlx5_1")): 5,
    }


def test_a_gpu_that_does_not_answer_is_in_no_pair() -> None:
    gpus = [build.gpu(0), build.gpu(1), build.gpu(2, state=GpuState.HUNG)]

    found = matrix("gpuscape_topology_nvlinks", build.node(gpus))

    assert set(found) == {("0", "1"), ("1", "0")}


def test_a_registered_gpu_tells_its_cluster_and_clique() -> None:
    gpu = build.gpu(fabric=fabric())

    assert list(told("gpuscape_gpu_fabric_info", build.node([gpu]))) == [
        (("clique_id", "7"), ("cluster_uuid", CLUSTER))
    ]


@pytest.mark.parametrize(
    ("given", "state", "registered"),
    [(fabric(3), 3, 1), (fabric(3, status=5), 3, 0), (fabric(1), 1, 0), (fabric(2), 2, 0)],
)
def test_registration_is_told_by_state_and_by_its_success(
    given: Fabric, state: int, registered: int
) -> None:
    gpu = build.gpu(fabric=given)

    assert value("gpuscape_gpu_fabric_state", gpu) == state
    assert value("gpuscape_gpu_fabric_registered", gpu) == registered


@pytest.mark.parametrize("given", [None, fabric(0)])
def test_without_a_fabric_nothing_is_told_of_one(given: Fabric | None) -> None:
    node = build.node([build.gpu(fabric=given)])

    for name in ("info", "state", "registered", "fault"):
        assert told(f"gpuscape_gpu_fabric_{name}", node) == {}


def test_a_single_node_fabric_has_no_cluster_to_name() -> None:
    zero = replace(fabric(), cluster_uuid="00000000-0000-0000-0000-000000000000")

    assert told("gpuscape_gpu_fabric_info", build.node([build.gpu(fabric=zero)])) == {}


FAULTS = ["degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout"]


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize(("bits", "expected"), [(1, 1), (2, 0), (0, None), (3, None)])
def test_each_fault_is_yes_no_or_not_told(at: int, bits: int, expected: int | None) -> None:
    gpu = build.gpu(fabric=fabric(mask=bits << 2 * at))

    found = told("gpuscape_gpu_fabric_fault", build.node([gpu]))

    assert found.get((("fault", FAULTS[at]),)) == expected


@pytest.mark.parametrize(("bits", "expected"), [(0, None), (1, 0), (2, 1), (9, 1)])
def test_a_wrong_configuration_is_a_fault(bits: int, expected: int | None) -> None:
    gpu = build.gpu(fabric=fabric(mask=bits << 8))

    found = told("gpuscape_gpu_fabric_fault", build.node([gpu]))

    assert found.get((("fault", "wrong_configuration"),)) == expected
