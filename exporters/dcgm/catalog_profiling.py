# SPDX-License-Identifier: Apache-2.0
"""Families of the profiling counters, by GPM: Hopper and later.

GPM metric ids are NVML's (``nvmlGpmMetricId_t``), what DCGM makes of them is in its
``dcgm_fields.cpp``. Before Hopper they come from a closed module of DCGM, and NVML has nothing
that equals them: there they are absent, never 0.
"""

from __future__ import annotations

from functools import partial

from discovery.sample import ReadingGroup, profiled_by
from exporters.dcgm.dcgm_family import (
    BYTES_PER_SECOND_MOST,
    RATIO_MOST,
    TOTAL_MOST,
    DcgmFamily,
    UnderMig,
)
from exporters.dcgm.family_values import of_profiling, pcie_rate
from exporters.prometheus_text import MetricType

_HOPPER = "Hopper and later"
_PERCENT = 100

_ratio = partial(DcgmFamily, most=RATIO_MOST, decimals=True, gpus=_HOPPER)
_total = partial(DcgmFamily, kind=MetricType.COUNTER, most=TOTAL_MOST, gpus=_HOPPER)
_bytes = partial(DcgmFamily, most=BYTES_PER_SECOND_MOST, under_mig=UnderMig.ABSENT, gpus=_HOPPER)


def _group(metric: int) -> ReadingGroup:
    """The one that reads the metric."""
    (group,) = profiled_by(metric)
    return group


_PIPES: tuple[tuple[int, int, str, str, str], ...] = (
    (1001, 1, "GR_ENGINE_ACTIVE", "GR_ENGINE", "Time in which the GPU computed or drew"),
    (1002, 2, "SM_ACTIVE", "SM", "Time in which an SM had work, over all SMs"),
    (1003, 3, "SM_OCCUPANCY", "SM_OCCUPANCY", "Warps on the SMs of those they can hold"),
    (1004, 5, "PIPE_TENSOR_ACTIVE", "TENSOR", "Time in which tensor cores computed"),
    (1005, 10, "DRAM_ACTIVE", "DRAM", "Time in which memory sent or received"),
    (1006, 11, "PIPE_FP64_ACTIVE", "FP64", "Time in which FP64 units computed"),
    (1007, 12, "PIPE_FP32_ACTIVE", "FP32", "Time in which FP32 units computed"),
    (1008, 13, "PIPE_FP16_ACTIVE", "FP16", "Time in which FP16 units computed"),
    (1013, 9, "PIPE_TENSOR_IMMA_ACTIVE", "IMMA",
     "Time in which tensor cores computed with integers"),
    (1014, 7, "PIPE_TENSOR_HMMA_ACTIVE", "HMMA",
     "Time in which tensor cores computed with small floats"),
    (1015, 6, "PIPE_TENSOR_DFMA_ACTIVE", "DFMA",
     "Time in which tensor cores computed with FP64"),
    (1016, 4, "PIPE_INT_ACTIVE", "INT", "Time in which integer units computed"),
)  # fmt: skip
"""DCGM's field, GPM's metric, name, stem of DCGM 4.6's name, in words."""

_ENGINES: tuple[tuple[str, int, int, int, str], ...] = (
    ("NVDEC", 1017, 30, 8, "video decoder"),
    ("NVJPG", 1025, 40, 8, "JPEG decoder"),
    ("NVOFA", 1033, 50, 2, "optical flow engine"),
)
"""Name, first field, first metric, how many there are, in words."""

_TRAFFIC: tuple[tuple[int, int, str, str], ...] = (
    (1011, 61, "NVLINK_TX_BYTES", "sent over all NVLinks"),
    (1012, 60, "NVLINK_RX_BYTES", "received over all NVLinks"),
    (1076, 100, "C2C_TX_ALL_BYTES", "sent to the CPU over NVLink-C2C, headers included"),
    (1077, 102, "C2C_TX_DATA_BYTES", "of data sent to the CPU over NVLink-C2C"),
    (1078, 101, "C2C_RX_ALL_BYTES", "received from the CPU over NVLink-C2C, headers included"),
    (1079, 103, "C2C_RX_DATA_BYTES", "of data received from the CPU over NVLink-C2C"),
    *(
        (1040 + 2 * link + (way == "RX"), 62 + 2 * link + (way == "TX"),
         f"NVLINK_L{link}_{way}_BYTES", f"{words} over NVLink {link}")
        for link in range(18)
        for way, words in (("TX", "sent"), ("RX", "received"))
    ),
)  # fmt: skip
"""DCGM's field, GPM's metric, name, in words. DCGM puts TX first, GPM RX."""

_CACHES: tuple[tuple[int, int, str, str], ...] = (
    (1080, 160, "HOSTMEM_CACHE_HIT", "to the host's memory that a cache served"),
    (1081, 161, "HOSTMEM_CACHE_MISS", "to the host's memory that no cache served"),
    (1082, 162, "PEERMEM_CACHE_HIT", "to other GPUs' memory that a cache served"),
    (1083, 163, "PEERMEM_CACHE_MISS", "to other GPUs' memory that no cache served"),
)
"""DCGM's field, GPM's metric, name, in words."""

_CYCLES: tuple[tuple[int, int, str, str], ...] = (
    (1084, 248, "SM_CYCLES_ELAPSED", "that the clock of the SMs made"),
    (1085, 249, "SM_CYCLES_ACTIVE", "in which an SM had work"),
    (1086, 250, "MMA_CYCLES_ACTIVE", "in which tensor cores computed"),
    (1087, 251, "DMMA_CYCLES_ACTIVE", "in which tensor cores computed with FP64"),
    (1088, 252, "HMMA_CYCLES_ACTIVE", "in which tensor cores computed with small floats"),
    (1089, 253, "IMMA_CYCLES_ACTIVE", "in which tensor cores computed with integers"),
    (1090, 254, "DFMA_CYCLES_ACTIVE", "in which tensor cores made fused FP64 operations"),
    (1093, 257, "INT_CYCLES_ACTIVE", "in which integer units computed"),
    (1094, 258, "FP64_CYCLES_ACTIVE", "in which FP64 units computed"),
    (1095, 259, "FP32_CYCLES_ACTIVE", "in which FP32 units computed"),
    (1096, 260, "FP16_CYCLES_ACTIVE", "in which FP16 units computed"),
)
_PCIE_TOTALS: tuple[tuple[int, int, str, str], ...] = (
    (1091, 255, "PCIE_TX_BYTES", "sent"),
    (1092, 256, "PCIE_RX_BYTES", "received"),
)
"""DCGM's field, GPM's metric, name, in words."""

FAMILIES: tuple[DcgmFamily, ...] = (
    *(
        _ratio(
            field=field,
            name=f"DCGM_FI_PROF_{name}",
            renamed=f"DCGM_FI_PROF_{stem}_{'RATIO' if name == stem else 'UTIL_RATIO'}",
            help=f"{words}, 0 to 1.",
            value=of_profiling(metric),
            group=_group(metric),
            under_mig=UnderMig.OWN,
        )
        for field, metric, name, stem, words in _PIPES
    ),
    *(
        _ratio(
            field=field + number,
            name=f"DCGM_FI_PROF_{engine}{number}_ACTIVE",
            renamed=f"DCGM_FI_PROF_{engine}_UTIL_{number}_RATIO",
            help=f"Time in which {words} {number} worked, 0 to 1.",
            value=of_profiling(metric + number),
            group=_group(metric + number),
            under_mig=UnderMig.ABSENT,
        )
        for engine, field, metric, count, words in _ENGINES
        for number in range(count)
    ),
    *(
        DcgmFamily(
            field=field,
            name=f"DCGM_FI_PROF_{name}",
            help=f"Requests {words}, in percent of all.",
            value=of_profiling(metric, _PERCENT),
            most=_PERCENT * RATIO_MOST,
            group=ReadingGroup.CACHES,
            under_mig=UnderMig.OWN,
            gpus=f"{_HOPPER}, where the driver counts them",
        )
        for field, metric, name, words in _CACHES
    ),
    *(
        _total(
            field=field,
            name=f"DCGM_FI_PROF_{name}_TOTAL",
            help=f"Cycles {words}, since the driver was loaded.",
            value=of_profiling(metric),
            group=ReadingGroup.TOTALS,
            under_mig=UnderMig.OWN,
        )
        for field, metric, name, words in _CYCLES
    ),
    *(
        _total(
            field=field,
            name=f"DCGM_FI_PROF_{name}_TOTAL",
            help=f"Bytes that the GPU {words} over PCIe since the driver was loaded.",
            value=of_profiling(metric),
            group=ReadingGroup.TOTALS,
            under_mig=UnderMig.ABSENT,
        )
        for field, metric, name, words in _PCIE_TOTALS
    ),
    _bytes(
        field=1009,
        name="DCGM_FI_PROF_PCIE_TX_BYTES",
        help="Bytes each second that the GPU sent over PCIe, headers included.",
        group=ReadingGroup.PROFILING,
        value=pcie_rate(20, lambda sample: sample.pcie.sent_bytes if sample.pcie else None),
        gpus=f"{_HOPPER}; before, where the driver counts PCIe bytes in 64 bits",
    ),
    _bytes(
        field=1010,
        name="DCGM_FI_PROF_PCIE_RX_BYTES",
        help="Bytes each second that the GPU received over PCIe, headers included.",
        group=ReadingGroup.PROFILING,
        value=pcie_rate(21, lambda sample: sample.pcie.received_bytes if sample.pcie else None),
        gpus=f"{_HOPPER}; before, where the driver counts PCIe bytes in 64 bits",
    ),
    *(
        _bytes(
            field=field,
            name=f"DCGM_FI_PROF_{name}",
            help=f"Bytes each second {words}.",
            value=of_profiling(metric),
            group=_group(metric),
        )
        for field, metric, name, words in _TRAFFIC
    ),
)
