# SPDX-License-Identifier: Apache-2.0
"""The choice of our own families that are served: all, none, or those of rules and dashboards.

The core adds at most as many series as DCGM's default families have, and 80. So it repeats
nothing that these have, and of a state that is rarely another it shows just that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from discovery.sample import ReadingGroup, profiled_by
from exporters.gpuscape.families import FAMILIES
from exporters.gpuscape.gpuscape_family import GpuscapeFamily, Series
from exporters.gpuscape.node_view import NodeView


class ServedFamilies(StrEnum):
    """Values of the setting ``own-families``: all families, the core, or none."""

    ALL = "all"
    CORE = "core"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePart:
    """The part of one family that the core set serves: which series, from which readings."""

    words: str
    """The part that is served, in words for the docs."""
    keeps: Callable[[tuple[str, ...], float], bool] = lambda _labels, _number: True
    """Whether a series with these label values and this number is served."""
    groups: tuple[ReadingGroup, ...] | None = None
    """The readings that this part needs, where they are fewer than those of the family."""


WHOLE = CorePart(words="yes")
WHILE_SET = CorePart(words="while not 0", keeps=lambda _labels, number: number != 0)
WHILE_ZERO = CorePart(words="while 0", keeps=lambda _labels, number: number == 0)


def _only(*words: str, groups: tuple[ReadingGroup, ...] | None = None) -> CorePart:
    """The series whose last label has one of these values."""
    return CorePart(
        words=", ".join(words), keeps=lambda labels, _: labels[-1] in words, groups=groups
    )


CORE: Mapping[str, CorePart] = {
    "gpuscape_driver_info": WHOLE,
    "gpuscape_gpu_info": WHOLE,
    "gpuscape_gpu_up": WHOLE,
    "gpuscape_gpu_health_info": WHOLE,
    "gpuscape_gpu_active_ratio": WHOLE,
    "gpuscape_gpu_temperature_headroom_celsius": WHOLE,
    "gpuscape_gpu_clock_event": _only("hw_thermal", "sw_thermal", "hw_power_brake"),
    # states that are rarely another
    "gpuscape_gpu_recovery_action": WHILE_SET,
    "gpuscape_gpu_persistence_enabled": WHILE_ZERO,
    "gpuscape_gpu_ecc_change_pending": WHILE_SET,
    "gpuscape_gpu_mig_enabled": WHILE_SET,
    "gpuscape_gpu_mig_change_pending": WHILE_SET,
    "gpuscape_gpu_row_remap_pending": WHILE_SET,
    "gpuscape_gpu_row_remap_failed": WHILE_SET,
    "gpuscape_gpu_page_retirement_pending": WHILE_SET,
    "gpuscape_gpu_fabric_registered": WHILE_ZERO,
    "gpuscape_gpu_fabric_fault": WHILE_SET,
    # counters; an alert on the first error needs the series to be there before
    "gpuscape_gpu_ecc_errors_total": CorePart(
        words="uncorrected, and corrected while not 0",
        keeps=lambda labels, number: labels[-1] == "uncorrected" or number != 0,
    ),
    "gpuscape_gpu_remapped_rows_total": WHILE_SET,
    "gpuscape_gpu_pcie_replays_total": WHILE_SET,
    # NVLink, as sums over links and as rows in place of pairs
    "gpuscape_gpu_nvlinks_active": WHOLE,
    "gpuscape_gpu_nvlinks_expected": WHOLE,
    "gpuscape_gpu_nvlink_transfer_errors_total": WHOLE,
    "gpuscape_topology_nvlinks_row": WHOLE,
    "gpuscape_topology_pcie_row": WHOLE,
    "gpuscape_topology_nic_row": WHOLE,
    # GPU instances
    "gpuscape_mig_instance_info": WHOLE,
    "gpuscape_mig_instance_share_ratio": WHOLE,
    "gpuscape_mig_instance_allocated": WHOLE,
    "gpuscape_mig_instance_memory_bytes": WHOLE,
    "gpuscape_mig_instance_memory_used_bytes": WHOLE,
    "gpuscape_mig_instance_graphics_active_ratio": WHOLE,
    "gpuscape_mig_instance_pipe_active_ratio": _only("tensor", groups=profiled_by(5)),
    "gpuscape_mig_instance_memory_bandwidth_ratio": WHOLE,
    # who holds what
    "gpuscape_pod_gpu_info": WHOLE,
    "gpuscape_resource_allocatable": WHOLE,
    "gpuscape_resource_allocated": WHOLE,
    "gpuscape_free_gpus": WHOLE,
    "gpuscape_free_gpus_largest_island": WHOLE,
    "gpuscape_free_gpus_fragmentation_ratio": WHOLE,
    "gpuscape_allocated_idle": WHOLE,
    "gpuscape_allocated_idle_seconds_total": WHOLE,
    "gpuscape_allocated_idle_ratio": WHOLE,
    "gpuscape_allocated_unmeasured": WHOLE,
    # where they are switched on, or where something happened
    "gpuscape_process_memory_bytes": WHOLE,
    "gpuscape_nvswitch_errors_total": WHOLE,
    "gpuscape_nvswitch_error_last_timestamp_seconds": WHOLE,
}
"""Name of a family to its part in the core; the core has no others."""


def families(served: ServedFamilies) -> tuple[GpuscapeFamily, ...]:
    """The families of this set, with no more series than the set has of them."""
    match served:
        case ServedFamilies.ALL:
            return FAMILIES
        case ServedFamilies.CORE:
            return tuple(
                _part_of(family, CORE[family.name]) for family in FAMILIES if family.name in CORE
            )
        case ServedFamilies.NONE:
            return ()


def needed_reading_groups(served: Iterable[GpuscapeFamily]) -> frozenset[ReadingGroup]:
    """The readings without which some of these families have no series."""
    return frozenset(group for family in served for group in family.groups)


def _part_of(family: GpuscapeFamily, part: CorePart) -> GpuscapeFamily:
    if part is WHOLE:
        return family

    def series(node: NodeView) -> Series:
        return (
            (labels, number)
            for labels, number in family.series(node)
            if number is not None and part.keeps(labels, number)
        )

    taken = family.groups if part.groups is None else part.groups
    return replace(family, series=series, groups=taken)
