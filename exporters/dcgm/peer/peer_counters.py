# SPDX-License-Identifier: Apache-2.0
"""Counters in dcgm-exporter's own counters file, with their types, by release. Pure.

Source: dcgm-exporter at each tag, ``etc/default-counters.csv``. Its
``etc/dcp-metrics-included.csv`` serves the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from exporters.dcgm.peer.peer_releases import (
    BEFORE_4_8_3,
    BEFORE_4_8_4,
    EVERY_RELEASE,
    SINCE_4_8_3,
    SINCE_4_8_4,
    ReleaseSpan,
)

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
LABEL: Final = "label"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCounter:
    """Row of the file: a field's name, its type, and whether it is served by default."""

    name: str
    kind: str
    """``gauge``, ``counter`` or ``label``."""
    served: bool
    """False for a row that the file has as a comment, for people to enable."""
    releases: ReleaseSpan = EVERY_RELEASE


def _rows(
    kind: str, *names: str, served: bool = False, releases: ReleaseSpan = EVERY_RELEASE
) -> Iterator[PeerCounter]:
    for name in names:
        yield PeerCounter(name=f"DCGM_{name}", kind=kind, served=served, releases=releases)


PEER_COUNTERS: Final[tuple[PeerCounter, ...]] = (
    *_rows(
        GAUGE,
        *("FI_DEV_SM_CLOCK", "FI_DEV_MEM_CLOCK", "FI_DEV_MEMORY_TEMP", "FI_DEV_GPU_TEMP"),
        *("FI_DEV_POWER_USAGE", "FI_DEV_GPU_UTIL", "FI_DEV_MEM_COPY_UTIL", "FI_DEV_ENC_UTIL"),
        *("FI_DEV_DEC_UTIL", "FI_DEV_XID_ERRORS", "FI_DEV_FB_FREE", "FI_DEV_FB_USED"),
        *("FI_DEV_FB_RESERVED", "FI_DEV_VGPU_LICENSE_STATUS", "FI_DEV_ROW_REMAP_FAILURE"),
        *("FI_PROF_GR_ENGINE_ACTIVE", "FI_PROF_PIPE_TENSOR_ACTIVE", "FI_PROF_DRAM_ACTIVE"),
        *("FI_PROF_PCIE_TX_BYTES", "FI_PROF_PCIE_RX_BYTES"),
        served=True,
    ),
    *_rows(
        COUNTER,
        *("FI_DEV_TOTAL_ENERGY_CONSUMPTION", "FI_DEV_PCIE_REPLAY_COUNTER"),
        *("FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
        served=True,
    ),
    *_rows(COUNTER, "FI_DEV_NVLINK_BANDWIDTH_TOTAL", served=True, releases=BEFORE_4_8_3),
    *_rows(GAUGE, "FI_DEV_NVLINK_BANDWIDTH_TOTAL", served=True, releases=SINCE_4_8_3),
    *_rows(LABEL, "FI_DRIVER_VERSION", served=True),
    *_rows(
        LABEL,
        *("FI_NVML_VERSION", "FI_DEV_BRAND", "FI_DEV_SERIAL", "FI_DEV_OEM_INFOROM_VER"),
        *("FI_DEV_ECC_INFOROM_VER", "FI_DEV_POWER_INFOROM_VER", "FI_DEV_INFOROM_IMAGE_VER"),
        "FI_DEV_VBIOS_VERSION",
    ),
    *_rows(
        GAUGE,
        *("FI_PROF_SM_ACTIVE", "FI_PROF_SM_OCCUPANCY", "FI_PROF_PIPE_FP64_ACTIVE"),
        *("FI_PROF_PIPE_FP32_ACTIVE", "FI_PROF_PIPE_FP16_ACTIVE"),
    ),
    *_rows(
        COUNTER,
        *("FI_DEV_POWER_VIOLATION", "FI_DEV_THERMAL_VIOLATION", "FI_DEV_SYNC_BOOST_VIOLATION"),
        *("FI_DEV_BOARD_LIMIT_VIOLATION", "FI_DEV_LOW_UTIL_VIOLATION"),
        *("FI_DEV_RELIABILITY_VIOLATION", "FI_DEV_ECC_SBE_VOL_TOTAL", "FI_DEV_ECC_DBE_VOL_TOTAL"),
        *("FI_DEV_ECC_SBE_AGG_TOTAL", "FI_DEV_ECC_DBE_AGG_TOTAL", "FI_DEV_RETIRED_SBE"),
        "FI_DEV_RETIRED_DBE",
    ),
    *_rows(COUNTER, "FI_DEV_RETIRED_PENDING", "FI_DEV_NVLINK_BANDWIDTH_L0", releases=BEFORE_4_8_4),
    *_rows(GAUGE, "FI_DEV_RETIRED_PENDING", "FI_DEV_NVLINK_BANDWIDTH_L0", releases=SINCE_4_8_4),
    *_rows(
        COUNTER,
        *("FI_PROF_PCIE_TX_BYTES", "FI_PROF_PCIE_RX_BYTES"),
        *("FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
        *("FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
        releases=BEFORE_4_8_4,
    ),
    *_rows(
        COUNTER,
        *("EXP_CLOCK_EVENTS_COUNT", "EXP_XID_ERRORS_COUNT", "EXP_GPU_HEALTH_STATUS"),
        "EXP_P2P_STATUS",
        releases=ReleaseSpan(first="4.6.0", last="4.8.2"),
    ),
    *_rows(
        GAUGE,
        *("EXP_CLOCK_EVENTS_COUNT", "EXP_XID_ERRORS_COUNT", "EXP_GPU_HEALTH_STATUS"),
        "EXP_P2P_STATUS",
        releases=SINCE_4_8_3,
    ),
    *_rows(
        COUNTER,
        *("EXP_CLOCK_EVENTS_TOTAL", "EXP_XID_ERRORS_TOTAL"),
        *("FI_PROF_SM_CYCLES_ELAPSED_TOTAL", "FI_PROF_SM_CYCLES_ACTIVE_TOTAL"),
        *("FI_PROF_MMA_CYCLES_ACTIVE_TOTAL", "FI_PROF_DMMA_CYCLES_ACTIVE_TOTAL"),
        *("FI_PROF_HMMA_CYCLES_ACTIVE_TOTAL", "FI_PROF_IMMA_CYCLES_ACTIVE_TOTAL"),
        *("FI_PROF_DFMA_CYCLES_ACTIVE_TOTAL", "FI_PROF_INT_CYCLES_ACTIVE_TOTAL"),
        *("FI_PROF_FP64_CYCLES_ACTIVE_TOTAL", "FI_PROF_FP32_CYCLES_ACTIVE_TOTAL"),
        *("FI_PROF_FP16_CYCLES_ACTIVE_TOTAL", "FI_PROF_PCIE_TX_BYTES_TOTAL"),
        "FI_PROF_PCIE_RX_BYTES_TOTAL",
        releases=SINCE_4_8_3,
    ),
    *_rows(
        GAUGE,
        *("FI_DEV_POWER_MGMT_LIMIT", "FI_DEV_ENFORCED_POWER_LIMIT"),
        *("FI_DEV_FABRIC_HEALTH_SUMMARY", "FI_DEV_FABRIC_HEALTH_MASK"),
        releases=SINCE_4_8_4,
    ),
    *_rows(
        COUNTER,
        *("FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL"),
        *("FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", "FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL"),
        *("FI_DEV_NVLINK_CRC_ERROR_TOTAL", "FI_DEV_NVLINK_RECOVERY_TOTAL"),
        *("FI_DEV_NVLINK_REPLAY_TOTAL", "FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL"),
        *("FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL", "FI_DEV_NVLINK_RECOVERY_EVENT_TOTAL"),
        releases=SINCE_4_8_4,
    ),
)


def counters_of(release: str) -> tuple[PeerCounter, ...]:
    """All rows of one release's counters file."""
    return tuple(row for row in PEER_COUNTERS if release in row.releases)


def default_kinds(release: str) -> dict[str, str]:
    """Name to type of what a release serves by default."""
    return {row.name: row.kind for row in counters_of(release) if row.served}
