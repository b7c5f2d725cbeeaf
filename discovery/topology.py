# SPDX-License-Identifier: Apache-2.0
"""The links between a node's GPUs and NICs as matrices, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from api.fabric_kind import FabricKind
from discovery.model import (
    GpuSnapshot,
    GpuState,
    Nic,
    NvLink,
    PciFacts,
    Topology,
    nvidia_gpus,
)
from discovery.nvml_terms import LinkPeer

UNKNOWN_CLASS = "N/A"
"""Link class of a pair of devices of which too little is known."""

_PCIE_CLASSES = ("PIX", "PIX", "PXB", "PHB", "NODE", "SYS")
_NODE, _SYSTEM = 4, 5


def node_topology(
    gpus: Sequence[GpuSnapshot], nics: Sequence[Nic], paths: Mapping[str, PciFacts]
) -> Topology:
    """Both matrices over the GPUs and NICs in their order; ``paths`` is keyed by bus id.

    NVLink: a link whose far end is a GPU of this node is direct. A link into an
    NVSwitch reaches every other GPU on a switch, unless the fabric manager put the
    two in different cliques. A link that is up but hides its far end, as in
    virtual machines, ends at a switch too: that is what hides there. A link to
    anything else, a GPU that this node does not have or a CPU, joins no pair.

    A GPU that does not answer, or of which one link could not be read, has None in its
    row and its column, even where the other end still counts its links: half a
    link carries nothing. Reading that is refused as unsupported is a measured 0.
    A GPU that cannot use its links (:func:`can_peer`) has 0 to all others, though
    they may be active.

    PCIe: between two GPUs NVML's answer wins; sysfs fills all the rest, by NVML's measure
    where that shows (:func:`_levels_across_bridges`).
    Source: nvmlDeviceGetNvLink{State,RemoteDeviceType,RemotePciInfo}; NCCL reads
    hidden far ends in the same way (NVIDIA/nccl issue 1182), and cliques (1301).
    """
    ports = _ports(gpus)
    able = [can_peer(gpu) for gpu in gpus]
    joined = _switched_pairs(gpus, ports, able)
    plain = Topology(
        gpus=tuple(gpu.bus_id for gpu in gpus),
        nics=tuple(nic.name for nic in nics),
        nvlinks=_nvlinks(gpus, ports, able, joined),
        pcie=_pcie(gpus, nics, paths),
    )
    return replace(plain, kind=FabricKind.SWITCH if joined else _direct_kind(plain))


def can_peer(gpu: GpuSnapshot) -> bool | None:
    """Whether the GPU can reach the memory of any other over NVLink; None where that is unknown.

    Active links do not make it so. In MIG mode a GPU has no peers: on Ampere its
    links are trained off, from Hopper on they stay active. Behind the NVSwitches of
    Hopper and later it has none either before it is registered with the fabric; its
    links are trained by hardware all the same.
    Source: NVIDIA Fabric Manager User Guide, "Interoperability With Multi-Instance
    GPUs" and "Initializing NVSwitch and NVLink"; MIG User Guide, "Application
    Considerations"; NVIDIA/nccl issue 1716.
    """
    fabric = None if gpu.nvidia is None else gpu.nvidia.fabric
    if gpu.mig_enabled or (fabric is not None and fabric.unregistered):
        return False
    return None if gpu.misses("mig") or gpu.misses("fabric") else True


def links_known(gpu: GpuSnapshot) -> bool:
    """Whether the GPU's links, their rates and its use of them are known."""
    return _links_read(gpu) and can_peer(gpu) is not None and not gpu.misses("link_rates")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """Active links of one GPU by where they end."""

    direct: Counter[str]
    """Bus id of another GPU of this node to links."""
    switched: int


def _ports(gpus: Sequence[GpuSnapshot]) -> list[_Ports | None]:
    """Active links of each GPU; None where its links are not known."""
    node_bus_ids = {gpu.bus_id for gpu in gpus}
    return [_ports_of(gpu, node_bus_ids) if _links_read(gpu) else None for gpu in gpus]


def _links_read(gpu: GpuSnapshot) -> bool:
    """Whether the GPU reports the state of each link, and the far end of each active one."""
    if gpu.state is not GpuState.PRESENT or (not _links(gpu) and gpu.misses("links")):
        return False
    return all(
        link.active is not None
        and (not link.active or link.peer is not None or link.peer_bus_id is not None)
        for link in _links(gpu)
    )


def _links(gpu: GpuSnapshot) -> tuple[NvLink, ...]:
    return () if gpu.nvidia is None else gpu.nvidia.links


def _ports_of(gpu: GpuSnapshot, node_bus_ids: AbstractSet[str]) -> _Ports:
    active = [link for link in _links(gpu) if link.active]
    peers = [link.peer_bus_id for link in active if link.peer_bus_id is not None]
    switched = sum(
        link.peer in (LinkPeer.SWITCH, LinkPeer.UNKNOWN) and link.peer_bus_id not in node_bus_ids
        for link in active
    )
    return _Ports(direct=Counter(peer for peer in peers if peer in node_bus_ids), switched=switched)


def _switched_pairs(
    gpus: Sequence[GpuSnapshot], ports: Sequence[_Ports | None], able: Sequence[bool | None]
) -> frozenset[tuple[int, int]]:
    """Places (i, j), i ≠ j, of GPUs that reach each other through a switch; both orders."""
    attached = [
        i
        for i, port in enumerate(ports)
        if port is not None and port.switched and able[i] is not False
    ]
    return frozenset(
        (i, j) for i in attached for j in attached if i != j and _one_clique(gpus[i], gpus[j])
    )


def _one_clique(a: GpuSnapshot, b: GpuSnapshot) -> bool:
    """Whether no report puts the two in different fabrics; Ampere and older report none at all."""
    cliques = {
        (nvidia.fabric.cluster_uuid, nvidia.fabric.clique_id)
        for _, nvidia in nvidia_gpus((a, b))
        if nvidia.fabric is not None and nvidia.fabric.registered
    }
    return len(cliques) <= 1


def _nvlinks(
    gpus: Sequence[GpuSnapshot],
    ports: Sequence[_Ports | None],
    able: Sequence[bool | None],
    joined: frozenset[tuple[int, int]],
) -> tuple[tuple[int | None, ...], ...]:
    def cell(i: int, j: int) -> int | None:
        if i == j or able[i] is False or able[j] is False:
            return 0
        own, peer = ports[i], ports[j]
        if own is None or peer is None or able[i] is None or able[j] is None:
            return None
        return own.direct[gpus[j].bus_id] + (own.switched if (i, j) in joined else 0)

    places = range(len(gpus))
    return tuple(tuple(cell(i, j) for j in places) for i in places)


def _pcie(
    gpus: Sequence[GpuSnapshot], nics: Sequence[Nic], paths: Mapping[str, PciFacts]
) -> tuple[tuple[int | None, ...], ...]:
    rows = [gpu.bus_id for gpu in gpus] + [nic.bus_id for nic in nics]
    by_nvml = {
        (gpu.bus_id, peer): level
        for gpu, nvidia in nvidia_gpus(gpus)
        for peer, level in nvidia.ancestors
    }
    across_bridges = _levels_across_bridges(by_nvml, paths)

    def level(i: int, j: int) -> int | None:
        a, b = sorted((i, j))
        first, second = rows[a], rows[b]
        if a == b:
            return 0
        nvml_level = by_nvml.get((first, second), by_nvml.get((second, first)))
        if nvml_level is not None or first not in paths or second not in paths:
            return nvml_level
        if _across_bridges(paths[first], paths[second]):
            node = paths[first].numa_node
            return across_bridges.get(node, None if node is None else _NODE)
        return ancestor_level(paths[first], paths[second])

    places = range(len(rows))
    return tuple(tuple(level(i, j) for j in places) for i in places)


def _levels_across_bridges(
    by_nvml: Mapping[tuple[str, str], int], paths: Mapping[str, PciFacts]
) -> dict[int | None, int]:
    """NUMA node to the level between devices on different host bridges of it, by NVML's measure.

    NVML answers NODE on some hosts and SYS on others of the same hardware, and nvidia-smi shows the
    same word for the NICs of that host. So the answer for the GPUs of a node is the measure of all
    devices of the node, and of nodes without such a pair of GPUs when the other nodes agree. A node
    is missing where no pair of GPUs shows it, or pairs differ. The key None stands for devices
    whose NUMA node is unknown.
    Source: the public matrices in tests/discovery/published_matrices.yaml.
    """
    answers: dict[int | None, set[int]] = {}
    for (gpu, peer), level in by_nvml.items():
        a, b = paths.get(gpu), paths.get(peer)
        if a is not None and b is not None and _across_bridges(a, b) and level in (_NODE, _SYSTEM):
            answers.setdefault(a.numa_node, set()).add(level)
    host = set().union(*(levels for node, levels in answers.items() if node is not None))
    # a NUMA node without such a pair of GPUs takes the host's answer, as nvidia-smi shows it
    for facts in paths.values():
        if facts.numa_node is not None:
            answers.setdefault(facts.numa_node, host)
    return {node: next(iter(levels)) for node, levels in answers.items() if len(levels) == 1}


def _across_bridges(a: PciFacts, b: PciFacts) -> bool:
    """Whether both are on one NUMA node, or on unknown ones, but on different host bridges."""
    return (
        a.root is not None
        and b.root is not None
        and a.root != b.root
        and a.numa_node == b.numa_node
    )


def ancestor_level(a: PciFacts, b: PciFacts) -> int | None:
    """How far up the PCIe tree two functions meet: 1 to 5 as in ``Topology.pcie``; None if unknown.

    A switch is an upstream port with downstream ports below it, each of them a
    bridge in sysfs. Two functions that meet below or at one switch have at most
    its downstream port each under the last bridge they share: level 1. One more
    bridge on either side belongs to a further switch: level 2. With no bridge in
    common, the same root bus means the same host bridge. Level 0, one board,
    does not show in the tree; only NVML knows it.
    Source: NVML's nvmlGpuTopologyLevel_t; Linux's sysfs PCI hierarchy.
    """
    if a.root is not None and a.root == b.root:
        shared = _shared(a.bridges, b.bridges)
        if shared == 0:
            return 3
        return 1 if max(len(a.bridges), len(b.bridges)) - shared <= 1 else 2
    if a.numa_node is None or b.numa_node is None:
        return None
    if a.numa_node != b.numa_node:
        return _SYSTEM
    return None if a.root is None or b.root is None else _NODE


def _shared(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """Length of the common start of two paths."""
    pairs = zip(a, b, strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _direct_kind(topology: Topology) -> FabricKind:
    """Bridge while no GPU has more than one partner; a link down at one end is no link."""
    partners = [neighbours.bit_count() for neighbours in _neighbours(topology)]
    if not any(partners):
        return FabricKind.NONE
    return FabricKind.BRIDGE if max(partners) == 1 else FabricKind.MESH


def _neighbours(topology: Topology) -> list[int]:
    """For each GPU a mask of the GPUs it has NVLinks with, both ends agreeing; bit 0 is GPU 0."""
    places = range(len(topology.gpus))
    return [sum(1 << j for j in places if topology.effective(i, j)) for i in places]


def largest_island(topology: Topology) -> int:
    """Size of the largest set of GPUs in which every pair has NVLinks.

    1 where none has any, 0 without GPUs.

    Pairwise, not merely connected: the eight GPUs of a DGX-1 are connected, but
    GPU 0 and GPU 5 talk over PCIe and the CPUs; what a job can rely on is four.
    Exact; a node's GPUs are few.
    """
    neighbours = _neighbours(topology)

    def grow(size: int, candidates: int) -> int:
        best = size
        # not even all that is left would make a larger island
        while size + candidates.bit_count() > best:
            pick = candidates.bit_length() - 1
            candidates ^= 1 << pick
            best = max(best, grow(size + 1, candidates & neighbours[pick]))
        return best

    return grow(0, (1 << len(neighbours)) - 1)


def link_bytes_per_second(gpus: Sequence[GpuSnapshot]) -> tuple[int | None, ...]:
    """Per GPU the rate of one of its NVLinks in one direction; None where no link reports it.

    The slowest active link counts, so that links times rate never promises too much.
    """
    rates = [
        [link.bytes_per_second for link in _links(gpu) if link.active and link.bytes_per_second]
        for gpu in gpus
    ]
    return tuple(min(known, default=None) for known in rates)


def link_class(topology: Topology, i: int, j: int) -> str:
    """Link between two rows of ``pcie`` in the words of ``nvidia-smi topo -m``.

    ``X`` for a device and itself, ``NV`` with the count of NVLinks, else how far the
    PCIe path goes: PIX, PXB, PHB, NODE, SYS. UNKNOWN_CLASS where the PCIe level, or
    whether two GPUs have NVLinks, is not known. Two GPUs on one board are PIX.
    """
    if i == j:
        return "X"
    if max(i, j) < len(topology.gpus):
        links = topology.effective(i, j)
        if links is None:
            return UNKNOWN_CLASS
        if links:
            return f"NV{links}"
    level = topology.pcie[i][j]
    return UNKNOWN_CLASS if level is None else _PCIE_CLASSES[level]
