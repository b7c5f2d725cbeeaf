# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a node, put together from what its separate readers return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.model import (
    Driver,
    Gap,
    GpuSnapshot,
    Host,
    NodeSnapshot,
    PciFacts,
    Reason,
)
from discovery.topology import node_topology

DISPLAYS = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""A DGX Station's display adapter: an NVIDIA GPU that nobody computes on.

NVIDIA's device plugin and gpu-feature-discovery pass over it by this name of
nvmlDeviceGetName. Source: NVIDIA/go-nvlib, pkg/nvlib/device.
"""

_FROM_HOST = ("pci_class", "numa_node", "cpu_affinity")


def assemble(
    host: Host,
    driver: Driver,
    gpus: Sequence[GpuSnapshot],
    pci: Mapping[str, PciFacts],
    counts: GpuCounts = NO_GPUS,
) -> NodeSnapshot:
    """The snapshot: GPUs in the order of ``gpus`` with the host's facts about them, and links.

    ``pci`` holds the facts of every GPU and NIC by bus id. A GPU without them keeps
    everything else and gets a gap for each field they would fill. Display adapters
    (:data:`DISPLAYS`) are no GPUs of the node: they are in nothing that is published.
    """
    ours = [gpu for gpu in gpus if gpu.model not in DISPLAYS]
    placed = tuple(_placed(gpu, pci.get(gpu.bus_id)) for gpu in ours)
    return NodeSnapshot(
        host=host,
        driver=driver,
        gpus=placed,
        topology=node_topology(placed, host.nics, pci),
        counts=counts.without(len(gpus) - len(ours)),
    )


def _placed(gpu: GpuSnapshot, facts: PciFacts | None) -> GpuSnapshot:
    if facts is None:
        return replace(gpu, gaps=gpu.gaps + tuple(_not_read(gpu, field) for field in _FROM_HOST))
    return replace(
        gpu,
        pci_class=facts.pci_class,
        numa_node=facts.numa_node,
        cpu_affinity=facts.cpu_affinity,
        pci_device_id=facts.device_id if gpu.pci_device_id is None else gpu.pci_device_id,
        pci_subsystem_id=(
            facts.subsystem_id if gpu.pci_subsystem_id is None else gpu.pci_subsystem_id
        ),
        gaps=gpu.gaps + facts.gaps,
    )


def _not_read(gpu: GpuSnapshot, field: str) -> Gap:
    source = f"sys/bus/pci/devices/{gpu.bus_id}"
    return Gap(what=field, reason=Reason.ABSENT, source=source, detail="the host does not show it")
