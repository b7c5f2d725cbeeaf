# SPDX-License-Identifier: Apache-2.0
"""How GPUs, and GPUs and NICs, are linked; and the NVLink fabric they are in. Pure.

Twice: by pair, for queries, and by row of the matrix, for whoever shows it. Pairs come in both
orders: n GPUs give n times n - 1 series of each family, and as rows n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from discovery.model import GpuSnapshot, NodeSnapshot
from exporters.gpuscape.gpuscape_family import GPU, GpuscapeFamily, Series, of_gpu_parts, of_gpus
from exporters.gpuscape.node_view import GpuView, NodeView, gpu_labels
from exporters.prometheus_text import MetricType

_PAIR = (*GPU, "index", "peer_uuid", "peer_pci_bus_id", "peer_index")
_COLUMNS = 32
"""No machine has more GPUs; columns beyond are left out."""
_ROW = tuple(f"to_{at:02}" for at in range(_COLUMNS))
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
    """Each ordered pair of GPUs that answer; ``number`` gets two rows of the topology."""

    def series(node: NodeView) -> Series:
        rows = {bus_id: row for row, bus_id in enumerate(node.snapshot.topology.gpus)}
        known = [
            (rows[each.gpu.bus_id], _place(each.gpu))
            for each in node.gpus
            if each.gpu.bus_id in rows
        ]
        for i, here in known:
            for j, there in known:
                if i != j:
                    yield (*here, *there), number(node.snapshot, i, j)

    return series


def _by_index(node: NodeView) -> list[tuple[int, int, GpuView]]:
    """Index, row in the topology, and the GPU, of each that answers and has both."""
    rows = {bus_id: row for row, bus_id in enumerate(node.snapshot.topology.gpus)}
    return [
        (each.gpu.index, rows[each.gpu.bus_id], each)
        for each in node.gpus
        if each.gpu.bus_id in rows and each.gpu.index is not None
    ]


def _columns(numbers: Mapping[int, int | None]) -> tuple[str, ...]:
    """Index of a GPU to a number, as values of :data:`_ROW`."""
    return tuple(
        "" if (number := numbers.get(at)) is None else str(number) for at in range(_COLUMNS)
    )


def _rows(number: Callable[[NodeSnapshot, int, int], int | None]) -> Callable[[NodeView], Series]:
    """As :func:`_pairs`, a series for each GPU."""

    def series(node: NodeView) -> Series:
        known = _by_index(node)
        for index, i, gpu in known:
            others = {at: number(node.snapshot, i, j) for at, j, _ in known if at != index}
            yield (*gpu.labels, str(index), *_columns(others)), 1 if others else None

    return series


def _nic_rows(node: NodeView) -> Series:
    topology, known = node.snapshot.topology, _by_index(node)
    for at, nic in enumerate(topology.nics, len(topology.gpus)):
        yield (nic, *_columns({index: topology.pcie[row][at] for index, row, _ in known})), 1


def _nics(node: NodeView) -> Series:
    topology = node.snapshot.topology
    rows = {bus_id: row for row, bus_id in enumerate(topology.gpus)}
    for each in node.gpus:
        row = rows.get(each.gpu.bus_id)
        if row is not None:
            for at, nic in enumerate(topology.nics):
                yield (*_place(each.gpu), nic), topology.pcie[row][len(topology.gpus) + at]


def _fabrics(node: NodeView) -> Series:
    for gpu in node.gpus:
        fabric = gpu.gpu.fabric
        if fabric is not None and fabric.attached:
            yield (*gpu.labels, fabric.cluster_uuid, str(fabric.clique_id)), 1


def _state(gpu: GpuView) -> int | None:
    fabric = gpu.gpu.fabric
    return None if fabric is None or fabric.state == 0 else fabric.state


def _registered(gpu: GpuView) -> bool | None:
    fabric = gpu.gpu.fabric
    if fabric is None or fabric.state == 0:
        return None
    return fabric.state == _COMPLETED and fabric.status == 0


def _faults(gpu: GpuView) -> dict[str, float | None]:
    """Pairs of bits: 1 yes, 2 no, 0 unknown. Of the configuration: 1 right, above wrong."""
    mask = None if gpu.gpu.fabric is None else gpu.gpu.fabric.health_mask
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
        kind=MetricType.GAUGE,
        help="NVLinks between two GPUs, direct or through NVSwitch; 0 where there are none.",
        labels=_PAIR,
        series=_pairs(_effective),
        source="the smaller number of active links that either GPU sees to the other",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_pcie_level",
        kind=MetricType.GAUGE,
        help=f"How far up two GPUs meet on PCIe: {_LEVELS}.",
        labels=_PAIR,
        series=_pairs(_level),
        source="nvmlDeviceGetTopologyCommonAncestor, else the PCI tree in sysfs",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_nic_pcie_level",
        kind=MetricType.GAUGE,
        help=f"How far up a GPU and an RDMA NIC meet on PCIe: {_LEVELS}.",
        labels=(*GPU, "index", "nic"),
        series=_nics,
        source="the PCI tree in sysfs",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_nvlinks_row",
        kind=MetricType.GAUGE,
        help="NVLinks from a GPU to each other one, in the label with that one's index; always 1.",
        labels=(*GPU, "index", *_ROW),
        series=_rows(_effective),
        source="gpuscape_topology_nvlinks",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_pcie_row",
        kind=MetricType.GAUGE,
        help="How far up a GPU and each other one meet on PCIe, in the label with that one's"
        " index; always 1.",
        labels=(*GPU, "index", *_ROW),
        series=_rows(_level),
        source="gpuscape_topology_pcie_level",
    ),
    GpuscapeFamily(
        name="gpuscape_topology_nic_row",
        kind=MetricType.GAUGE,
        help="How far up an RDMA NIC and each GPU meet on PCIe, in the label with the GPU's"
        " index; always 1.",
        labels=("nic", *_ROW),
        series=_nic_rows,
        source="gpuscape_topology_nic_pcie_level",
    ),
    GpuscapeFamily(
        name="gpuscape_gpu_fabric_info",
        kind=MetricType.GAUGE,
        help="Cluster and clique of the NVLink fabric that the GPU is registered with; always 1.",
        labels=(*GPU, "cluster_uuid", "clique_id"),
        series=_fabrics,
        source=_FABRIC,
    ),
    of_gpus(
        "gpuscape_gpu_fabric_state",
        "Registration with the NVLink fabric: 1 not started, 2 in progress, 3 completed.",
        _state,
        source=f"{_FABRIC}; GPUs without a fabric have no series",
    ),
    of_gpus(
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
