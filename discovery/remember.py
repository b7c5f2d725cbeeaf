# SPDX-License-Identifier: Apache-2.0
"""The rule for facts that do not change: one that cannot be read stays as it was last read.

A gap marks it (``kept``). A fact that the device or host reports as not there is gone,
and one that was never read is absent. What changes by itself, such as whether an NVLink is active,
is no such fact: not read, it is not known. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from discovery.gpu_fields import gpu_field, with_gpu_fields
from discovery.model import (
    Driver,
    Gap,
    GpuSnapshot,
    GpuState,
    Host,
    NvidiaFacts,
    NvLink,
    PciFacts,
    Reason,
)
from discovery.unread import unread_gpu

FACTS = (
    "minor",
    "uuid",
    "serial",
    "model",
    "architecture",
    "compute_capability",
    "pci_device_id",
    "pci_subsystem_id",
    "vbios_version",
    "memory_bytes",
    "memory_bus_bits",
    "max_mig_devices",
    "fabric",
    "virtualization",
    "own_numa_node",
)
"""Facts of a GPU that do not change, by field; one that does not answer keeps them."""
_IDENTITY = ("uuid", "serial", "pci_device_id")
"""Facts by which two GPUs differ that come to the same place one after the other."""
_DRIVER = ("version", "nvml_version", "cuda_version")
_HOST = ("machine_type", "cpus", "memory_bytes", "numa_nodes", "nics", "vgpu")
_PCI = {
    "pci_class": "pci_class",
    "numa_node": "numa_node",
    "cpu_affinity": "cpu_affinity",
    "root": "ancestors",
    "bridges": "ancestors",
    "device_id": "ancestors",
    "subsystem_id": "ancestors",
}
"""Field to the name of its gap."""


def gpu_with_kept_facts(now: GpuSnapshot, before: GpuSnapshot | None) -> GpuSnapshot:
    """A GPU with what was known of it before; another GPU in its place has nothing of that.

    One that does not answer keeps all facts: its gap ``state`` says that they are kept.
    """
    if before is None or _is_another(now, before):
        return now
    if now.state is not GpuState.PRESENT:
        unread = [field for field in FACTS if gpu_field(now, field) is None]
        kept = [field for field in unread if gpu_field(before, field) is not None]
    else:
        kept = _kept(now.gaps, {field: field for field in FACTS}, before, gpu_field)
        now = replace(now, gaps=_marked(now.gaps, kept))
    now = with_gpu_fields(now, {field: gpu_field(before, field) for field in kept})
    if now.nvidia is None or before.nvidia is None:
        return now
    return _with_kept_links(now, now.nvidia, before.nvidia)


def _with_kept_links(gpu: GpuSnapshot, now: NvidiaFacts, before: NvidiaFacts) -> GpuSnapshot:
    """The GPU with the levels that it had; one that answers with what its links had, too."""
    facts = replace(now, ancestors=_levels(now, before))
    if gpu.state is not GpuState.PRESENT:
        return replace(gpu, nvidia=facts)
    links = _links(now, before)
    gaps = _marked(gpu.gaps, _known_again(links))
    return replace(gpu, nvidia=replace(facts, links=links), gaps=gaps)


def lasting_facts(gpu: GpuSnapshot) -> dict[str, Any]:
    """Facts of a GPU that outlive the process that read them.

    :func:`gpu_of_lasting_facts` takes them back.
    """
    facts = {field: gpu_field(gpu, field) for field in FACTS}
    if gpu.nvidia is None:
        return facts
    links = tuple(replace(link, active=None) for link in gpu.nvidia.links)
    return facts | {"ancestors": gpu.nvidia.ancestors, "links": links}


def gpu_of_lasting_facts(bus_id: str, facts: Mapping[str, Any]) -> GpuSnapshot:
    """An NVIDIA GPU of which another process has read these facts; never shown as it is."""
    return with_gpu_fields(unread_gpu(bus_id, GpuState.PRESENT), facts)


def driver_with_kept_facts(now: Driver, before: Driver | None) -> Driver:
    """The driver that answers, with versions that it reported before."""
    kept = _kept(now.gaps, {field: field for field in _DRIVER}, before)
    return replace(
        now, **{field: getattr(before, field) for field in kept}, gaps=_marked(now.gaps, kept)
    )


def host_with_kept_facts(now: Host, before: Host | None) -> Host:
    """The machine, with what its files had before."""
    kept = _kept(now.gaps, {field: field for field in _HOST}, before)
    return replace(
        now, **{field: getattr(before, field) for field in kept}, gaps=_marked(now.gaps, kept)
    )


def pci_with_kept_facts(now: PciFacts, before: PciFacts | None) -> PciFacts:
    """Place and facts of a PCI function, with those that sysfs had before."""
    kept = _kept(now.gaps, _PCI, before)
    gap_names = {_PCI[field] for field in kept}
    return replace(
        now, **{key: getattr(before, key) for key in kept}, gaps=_marked(now.gaps, gap_names)
    )


def _kept(
    gaps: Collection[Gap],
    gap_names: Mapping[str, str],
    before: Any,
    read: Callable[[Any, str], object] = getattr,
) -> list[str]:
    """The fields with a gap that were known before. ``gap_names``: field to the gap's ``what``."""
    missed = {gap.what for gap in gaps if gap.reason is not Reason.UNSUPPORTED}
    return [
        field
        for field, gap_name in gap_names.items()
        if gap_name in missed and before is not None and read(before, field) not in (None, ())
    ]


def _marked(gaps: Collection[Gap], kept: Collection[str]) -> tuple[Gap, ...]:
    return tuple(replace(gap, kept=True) if gap.what in kept else gap for gap in gaps)


def _is_another(now: GpuSnapshot, before: GpuSnapshot) -> bool:
    if (now.nvidia is None) is not (before.nvidia is None):
        return True
    pairs = ((getattr(now, field), getattr(before, field)) for field in _IDENTITY)
    return any(a is not None and b is not None and a != b for a, b in pairs)


def _levels(now: NvidiaFacts, before: NvidiaFacts) -> tuple[tuple[str, int], ...]:
    """PCIe levels to other GPUs: a slot does not move, and a silent GPU reports none."""
    return tuple((dict(before.ancestors) | dict(now.ancestors)).items())


def _links(now: NvidiaFacts, before: NvidiaFacts) -> tuple[NvLink, ...]:
    """The links as they are now; far ends and speeds are kept, of links that are down too."""
    known = {link.link: link for link in before.links}
    return tuple(_link(link, known.get(link.link)) for link in now.links)


def _link(now: NvLink, before: NvLink | None) -> NvLink:
    if before is None:
        return now
    missing = {
        field.name: getattr(before, field.name)
        for field in fields(NvLink)
        if field.name != "active" and getattr(now, field.name) is None
    }
    return replace(now, **missing)


def _known_again(links: Collection[NvLink]) -> set[str]:
    """Names of the gaps of links that leave nothing unknown."""
    active = [link for link in links if link.active]
    gap_names = set()
    if all(link.active is not None for link in links) and all(link.peer for link in active):
        gap_names.add("links")
    if all(link.bytes_per_second for link in active):
        gap_names.add("link_rates")
    return gap_names
