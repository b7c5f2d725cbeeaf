# SPDX-License-Identifier: Apache-2.0
"""The GPUs that a process which calls NVML may touch, and how many each source counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from discovery.bus_id import bus_order
from discovery.gpu_counts import GpuCounts
from discovery.host.hypervisor import is_wsl
from discovery.host.pci import pci_gpus
from discovery.nvml.session import (
    IndexedGpus,
    excluded_bus_ids,
    gpus_by_index,
    nvml_gpu_count,
)
from discovery.reader.protocol import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGpus:
    """The GPUs that should answer, and how many each source counts; bus ids in PCI bus order."""

    ours: tuple[str, ...]
    elsewhere: tuple[str, ...]
    """GPUs of another driver, and GPUs that the driver is configured to leave alone."""
    counts: GpuCounts


def listed_gpus(start: Start) -> ListedGpus:
    """The GPUs that should answer: those of sysfs, and where NVML counts more, those of NVML too.

    Raises DriverAbsent or DriverMismatch when the whole session is gone.
    """
    root = Path(start.host_root)
    pci, excluded = pci_gpus(root), excluded_bus_ids()
    shown = [bus_id for bus_id in pci.ours if bus_id not in excluded]
    count, gap = nvml_gpu_count()
    indexed = _NOT_NEEDED if (count or 0) <= len(shown) else gpus_by_index(count or 0)
    return ListedGpus(
        ours=tuple(sorted({*shown, *indexed.bus_ids}, key=bus_order)),
        elsewhere=(*pci.elsewhere, *excluded),
        counts=GpuCounts(
            sysfs=len(shown) if pci.shown else None,
            nvml=count,
            why_uncounted="" if gap is None else gap.detail,
            integrated=indexed.integrated,
            on_pci=not (is_wsl(root) or indexed.integrated),
        ),
    )


_NOT_NEEDED = IndexedGpus(bus_ids=(), integrated=0)


def allowed(start: Start, listed: tuple[str, ...]) -> tuple[str, ...]:
    """The listed GPUs that may be touched."""
    return tuple(
        bus_id
        for bus_id in listed
        if bus_id not in start.skip and (start.only is None or bus_id in start.only)
    )
