# SPDX-License-Identifier: Apache-2.0
"""Links between GPUs, and between GPUs and NICs; the NVLink fabric of each GPU. Pure.

Twice: by pair, for queries, and by row of the matrix, for whoever shows it. Pairs come in both
orders: n GPUs give n times n - 1 series of each family, and as rows n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from discovery.model import GpuSnapshot, NodeSnapshot, NvidiaFacts
from exporters.gpuscape.gpuscape_family import (
    GPU,
    GpuscapeFamily,
    Series,
    of_gpu_parts,
    of_nvidia_gpus,
)
from exporters.gpuscape.node_view import GpuView, NodeView, gpu_labels

_PAIR = (*GPU, "index", "peer_uuid", "peer_pci_bus_id", "peer_index")
_COLUMNS = 32
"""No machine has more GPUs; columns beyond are left out."""
_ROW = tuple(f"to_{index:02}" for index in range(_COLUMNS))
"""Labels of a row: by index of the other GPU, so written that they sort by it."""
_FABRIC = "nvmlDeviceGetGpuFabricInfoV"
_COMPLETED = 3


def _place(gpu: GpuSnapshot) -> tuple[str, ...]:
    return (*gpu_labels(gpu), "" if gpu.index is None else str(gpu.index))


def _effective(node: NodeSnapshot, i: int, j: int) -> int | None:
    return node.topology.effective(i, j)


def _level(node: NodeSnapshot, i: int, j: int) -> int | None:
    return node.topology.pcie[i][j]


def _pairs(number: Callable[[NodeSnapshot, int, int], int | None]) -> Callable[[NodeView], Series]:
    """A series for each ordered pair of GPUs that answer.

    ``number`` gets two rows of the topology.
    """

    def series(node: NodeView) -> Series:
        rows = {bus_id: row for row, bus_id in enumerate(node.snapshot.topology.gpus)}
        known = [
            (rows[gpu.gpu.bus_id], _place(gpu.gpu)) for gpu in node.gpus if gpu.gpu.bus_id in rows
        ]
        for i, gpu_place in known:
            for j, peer_place in known:
                if i != j:
                    yield (*gpu_place, *peer_place), number(node.snapshot, i, j)

    return series


def _by_index(node: NodeView) -> list[tuple[int, int, GpuView]]:
    """Index, row in the topology, and the GPU, of each that answers and has both."""
    rows = {bus_id: row for row, bus_id in enumerate(node.snapshot.topology.gpus)}
    return [
        (gpu.gpu.index, rows[gpu.gpu.bus_id], gpu)
        for gpu in node.gpus
        if gpu.gpu.bus_id in rows and gpu.gpu.index is not None
    ]


def _columns(numbers: Mapping[int, int | None]) -> tuple[str, ...]:
    """Index of a GPU to a number, as values of :data:`_ROW`."""
    return tuple(
        "" if (number := numbers.get(index)) is None else str(number) for index in range(_COLUMNS)
    )


def _rows(number: Callable[[NodeSnapshot, int, int], int | None]) -> Callable[[NodeView], Series]:
    """A series for each GPU, with the numbers of its pairs as labels.

    ``number`` gets two rows of the topology.
    """

    def series(node: NodeView) -> Series:
        known = _by_index(node)
        for index, i, gpu in known:
            numbers = {
                peer_index: number(node.snapshot, i, j)
                for peer_index, j, _ in known
                if peer_index != index
            }
            yield (*gpu.labels, str(index), *_columns(numbers)), 1 if numbers else None

    return series


def _nic_rows(node: NodeView) -> Series:
    topology, known = node.snapshot.topology, _by_index(node)
    for nic_row, nic in enumerate(topology.nics, len(topology.gpus)):
        yield (nic, *_columns({index: topology.pcie[row][nic_row] for index, row, _ in known})), 1


def _nics(node: NodeView) -> Series:
    topology = node.snapshot.topology
    rows = {bus_id: row for row, bus_id in enumerate(topology.gpus)}
    for gpu in node.gpus:
        row = rows.get(gpu.gpu.bus_id)
        if row is not None:
            for nic_index, nic in enumerate(topology.nics):
                yield (*_place(gpu.gpu), nic), topology.pcie[row][len(topology.gpus) + nic_index]


def _fabrics(node: NodeView) -> Series:
    for gpu, nvidia in node.nvidia_gpus:
        fabric = nvidia.fabric
        if fabric is not None and fabric.attached:
            yield (*gpu.labels, fabric.cluster_uuid, str(fabric.clique_id)), 1


def _state(nvidia: NvidiaFacts) -> int | None:
    fabric = nvidia.fabric
    return None if fabric is None or fabric.state == 0 else fabric.state


def _registered(nvidia: NvidiaFacts) -> bool | None:
    fabric = nvidia.fabric
    if fabric is None or fabric.state == 0:
        return None
    return fabric.state == _COMPLETED and fabric.status == 0


def _faults(gpu: GpuView) -> dict[str, float | None]:
    """Pairs of bits: 1 yes, 2 no, 0 unknown. Of the configuration: 1 right, above wrong."""
    fabric = None if gpu.gpu.nvidia is None else gpu.gpu.nvidia.fabric
    mask = None if fabric is None else fabric.health_mask
    if mask is None:
        return {}
    pairs = {
        "degraded_bandwidth": mask & 3,
        "route_recovery": mask >> 2 & 3,
        "route_unhealthy": mask >> 4 & 3,
        "access_timeout": mask >> 6 & 3,
    }
    faults: dict[str, float | None] = {
        word: bits == 1 if bits in (1, 2) else None for word, bits in pairs.items()
    }
    configuration = mask >> 8 & 0xF
    return faults | {"wrong_configuration": configuration > 1 if configuration else None}


_LEVELS = "0 same board, 1 one switch, 2 several, 3 same host bridge, 4 same NUMA node, 5 across"

FAMILIES: tuple[GpuscapeFamily, ...] = (
    GpuscapeFamily(
        name="gpuscape_topology_nvlinks",
        help="NVLinks between two GPUs, direct or through NVSwitch; 0 where there are none.",
        labels=_PAIR,
        series=_pairs(_effective),
        source="the smaller number of active links that either GPU sees to the other",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_pcie_level",
        help=f"How far up two GPUs meet on PCIe: {_LEVELS}.",
        labels=_PAIR,
        series=_pairs(_level),
        source="nvmlDeviceGetTopologyCommonAncestor, else the PCI tree in sysfs",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_nic_pcie_level",
        help=f"How far up a GPU and an RDMA NIC meet on PCIe: {_LEVELS}.",
        labels=(*GPU, "index", "nic"),
        series=_nics,
        source="the PCI tree in sysfs",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_nvlinks_row",
        help="NVLinks from a GPU to each other GPU, one label for each index; always 1.",
        labels=(*GPU, "index", *_ROW),
        series=_rows(_effective),
        source="gpuscape_topology_nvlinks",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_pcie_row",
        help="How far up a GPU and each other GPU meet on PCIe, one label for each index; always"
        " 1.",
        labels=(*GPU, "index", *_ROW),
        series=_rows(_level),
        source="gpuscape_topology_pcie_level",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_nic_row",
        help="How far up an RDMA NIC and each GPU meet on PCIe, in the label with the GPU's"
        " index; always 1.",
        labels=("nic", *_ROW),
        series=_nic_rows,
        source="gpuscape_topology_nic_pcie_level",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_fabric_info",
        help="Cluster and clique of the NVLink fabric that the GPU is registered with; always 1.",
        labels=(*GPU, "cluster_uuid", "clique_id"),
        series=_fabrics,
        source=_FABRIC,
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_fabric_state",
        "Registration with the NVLink fabric: 1 not started, 2 in progress, 3 completed.",
        _state,
        source=f"{_FABRIC}; GPUs without a fabric have no series",
    ),
    of_nvidia_gpus(
        "gpuscape_gpu_fabric_registered",
        "1 if registration with the NVLink fabric completed with success, else 0.",
        _registered,
        source=f"{_FABRIC}, state 3 and status 0",
    ),
    of_gpu_parts(
        "gpuscape_gpu_fabric_fault",
        "1 if the NVLink fabric reports this fault for the GPU, else 0.",
        "fault",
        _faults,
        source=f"{_FABRIC}, healthMask",
    ),
)
