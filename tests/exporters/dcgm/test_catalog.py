# SPDX-License-Identifier: Apache-2.0
"""The catalogue: every family's field, type, unit, behaviour under MIG; and what is no value."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from discovery.model import Driver, Fabric, Gap, GpuSnapshot, Reason
from discovery.sample import GpuSample, LinkCounters, MemoryUse, Pcie, ReadingGroup
from discovery.unread import unread_sample
from exporters.dcgm.catalog import CATALOG, COUNTED, DEFAULT_FAMILIES, DEFAULT_LABELS, LABEL_ROWS
from exporters.dcgm.dcgm_family import AnyFamily, DcgmFamily, DcgmReading, LabelRow, UnderMig
from exporters.prometheus_text import MetricType
from tests import build
from tests.exporters import everything

GAUGE, COUNTER = MetricType.GAUGE, MetricType.COUNTER
REPEATED, OWN, ABSENT = UnderMig.REPEATED, UnderMig.OWN, UnderMig.ABSENT
PROFILING, LINKS, ECC, LIMITS = (
    ReadingGroup.PROFILING,
    ReadingGroup.LINKS,
    ReadingGroup.ECC,
    ReadingGroup.LIMITS,
)
HELD, EVENTS, CLOCKS = ReadingGroup.HELD_DOWN, ReadingGroup.CLOCK_EVENTS, ReadingGroup.CLOCKS
PIPES, ENGINES, TOTALS = ReadingGroup.PIPES, ReadingGroup.ENGINES, ReadingGroup.TOTALS
BOARD, SPARE_ROWS = ReadingGroup.BOARD, ReadingGroup.SPARE_ROWS
NUMBERS = ReadingGroup.NUMBERS
DRIVER = Driver(version="550.54.15", nvml_version="12.550.54.15", cuda_version=(12, 4))

# By hand from dcgm-exporter's default-counters.csv.
DEFAULTS = {
    "DEV_SM_CLOCK": (100, GAUGE, REPEATED, "1980"),
    "DEV_MEM_CLOCK": (101, GAUGE, REPEATED, "2619"),
    "DEV_MEMORY_TEMP": (140, GAUGE, REPEATED, "62"),
    "DEV_GPU_TEMP": (150, GAUGE, REPEATED, "45"),
    "DEV_POWER_USAGE": (155, GAUGE, REPEATED, "700.250000"),
    "DEV_TOTAL_ENERGY_CONSUMPTION": (156, COUNTER, REPEATED, "57585599"),
    "DEV_PCIE_REPLAY_COUNTER": (202, COUNTER, REPEATED, "4"),
    "DEV_GPU_UTIL": (203, GAUGE, ABSENT, "57"),
    "DEV_MEM_COPY_UTIL": (204, GAUGE, ABSENT, "29"),
    "DEV_ENC_UTIL": (206, GAUGE, ABSENT, "100"),
    "DEV_DEC_UTIL": (207, GAUGE, ABSENT, "3"),
    "DEV_XID_ERRORS": (230, GAUGE, OWN, "31"),
    "DEV_FB_FREE": (251, GAUGE, OWN, "3000"),
    "DEV_FB_USED": (252, GAUGE, OWN, "1000"),
    "DEV_FB_RESERVED": (253, GAUGE, OWN, "500"),
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": (393, COUNTER, REPEATED, "2"),
    "DEV_CORRECTABLE_REMAPPED_ROWS": (394, COUNTER, REPEATED, "3"),
    "DEV_ROW_REMAP_FAILURE": (395, GAUGE, REPEATED, "0"),
    "DEV_NVLINK_BANDWIDTH_TOTAL": (449, GAUGE, REPEATED, "8"),
    "DEV_VGPU_LICENSE_STATUS": (526, GAUGE, REPEATED, "1"),
    "PROF_GR_ENGINE_ACTIVE": (1001, GAUGE, OWN, "0.001000"),
    "PROF_PIPE_TENSOR_ACTIVE": (1004, GAUGE, OWN, "0.005000"),
    "PROF_DRAM_ACTIVE": (1005, GAUGE, OWN, "0.010000"),
    "PROF_PCIE_TX_BYTES": (1009, GAUGE, ABSENT, "20971520"),
    "PROF_PCIE_RX_BYTES": (1010, GAUGE, ABSENT, "22020096"),
}

Row = tuple[int, MetricType, UnderMig, ReadingGroup | None, str]

OPTIONAL: dict[str, Row] = {
    "DEV_COUNT": (4, GAUGE, REPEATED, None, "8"),
    "CUDA_DRIVER_VERSION": (5, GAUGE, REPEATED, None, "12040"),
    "DEV_NVML_INDEX": (52, GAUGE, REPEATED, None, "0"),
    "DEV_MINOR_NUMBER": (55, GAUGE, REPEATED, None, "0"),
    "DEV_PCI_COMBINED_ID": (58, GAUGE, REPEATED, None, "591401182"),
    "DEV_PCI_SUBSYS_ID": (59, GAUGE, REPEATED, None, "380047582"),
    "DEV_CUDA_COMPUTE_CAPABILITY": (63, GAUGE, REPEATED, None, "524288"),
    "DEV_COMPUTE_MODE": (65, GAUGE, REPEATED, BOARD, "2"),
    "DEV_PERSISTENCE_MODE": (66, GAUGE, REPEATED, None, "1"),
    "DEV_MIG_MODE": (67, GAUGE, REPEATED, None, "0"),
    "DEV_CC_MODE": (74, GAUGE, REPEATED, BOARD, "1"),
    "DEV_AUTOBOOST": (120, GAUGE, REPEATED, BOARD, "0"),
    "DEV_VIRTUAL_MODE": (500, GAUGE, REPEATED, None, "3"),
    "DEV_BAR1_TOTAL": (90, GAUGE, ABSENT, ReadingGroup.BAR1, "128"),
    "DEV_BAR1_USED": (92, GAUGE, ABSENT, ReadingGroup.BAR1, "28"),
    "DEV_BAR1_FREE": (93, GAUGE, ABSENT, ReadingGroup.BAR1, "100"),
    "DEV_VIDEO_CLOCK": (102, GAUGE, REPEATED, CLOCKS, "1545"),
    "DEV_APP_SM_CLOCK": (110, GAUGE, REPEATED, CLOCKS, "1755"),
    "DEV_APP_MEM_CLOCK": (111, GAUGE, REPEATED, CLOCKS, "2619"),
    "DEV_MAX_SM_CLOCK": (113, GAUGE, REPEATED, CLOCKS, "1980"),
    "DEV_MAX_MEM_CLOCK": (114, GAUGE, REPEATED, CLOCKS, "2620"),
    "DEV_MAX_VIDEO_CLOCK": (115, GAUGE, REPEATED, CLOCKS, "1546"),
    "DEV_POWER_USAGE_INSTANT": (157, GAUGE, REPEATED, ReadingGroup.INSTANT_POWER, "712.500000"),
    "DEV_CLOCK_THROTTLE_REASONS": (112, GAUGE, REPEATED, EVENTS, "260"),
    "DEV_MEM_MAX_OP_TEMP": (151, GAUGE, REPEATED, LIMITS, "95"),
    "DEV_GPU_MAX_OP_TEMP": (152, GAUGE, REPEATED, LIMITS, "85"),
    "DEV_GPU_TEMP_LIMIT": (153, GAUGE, REPEATED, LIMITS, "-3"),
    "DEV_SLOWDOWN_TEMP": (158, GAUGE, REPEATED, LIMITS, "87"),
    "DEV_SHUTDOWN_TEMP": (159, GAUGE, REPEATED, LIMITS, "92"),
    "DEV_POWER_MGMT_LIMIT": (160, GAUGE, REPEATED, LIMITS, "650.000000"),
    "DEV_POWER_MGMT_LIMIT_MIN": (161, GAUGE, REPEATED, LIMITS, "200.000000"),
    "DEV_POWER_MGMT_LIMIT_MAX": (162, GAUGE, REPEATED, LIMITS, "701.500000"),
    "DEV_POWER_MGMT_LIMIT_DEF": (163, GAUGE, REPEATED, LIMITS, "700.000000"),
    "DEV_ENFORCED_POWER_LIMIT": (164, GAUGE, REPEATED, LIMITS, "600.000000"),
    "DEV_FABRIC_MANAGER_STATUS": (170, GAUGE, REPEATED, None, "3"),
    "DEV_FABRIC_CLIQUE_ID": (173, GAUGE, REPEATED, None, "7"),
    "DEV_FABRIC_HEALTH_MASK": (174, GAUGE, REPEATED, None, "21930"),
    "DEV_FABRIC_HEALTH_SUMMARY": (175, GAUGE, REPEATED, None, "2"),
    "DEV_PSTATE": (190, GAUGE, REPEATED, ReadingGroup.FAN, "2"),
    "DEV_FAN_SPEED": (191, GAUGE, REPEATED, ReadingGroup.FAN, "33"),
    "DEV_PCIE_MAX_LINK_GEN": (235, GAUGE, REPEATED, BOARD, "6"),
    "DEV_PCIE_MAX_LINK_WIDTH": (236, GAUGE, REPEATED, BOARD, "32"),
    "DEV_PCIE_LINK_GEN": (237, GAUGE, REPEATED, ReadingGroup.PCIE, "5"),
    "DEV_PCIE_LINK_WIDTH": (238, GAUGE, REPEATED, ReadingGroup.PCIE, "16"),
    "DEV_POWER_VIOLATION": (240, COUNTER, REPEATED, HELD, "1000000001"),
    "DEV_THERMAL_VIOLATION": (241, COUNTER, REPEATED, HELD, "2500000000"),
    "DEV_SYNC_BOOST_VIOLATION": (242, COUNTER, REPEATED, HELD, "3000000000"),
    "DEV_BOARD_LIMIT_VIOLATION": (243, COUNTER, REPEATED, HELD, "4000000000"),
    "DEV_LOW_UTIL_VIOLATION": (244, COUNTER, REPEATED, HELD, "5000000000"),
    "DEV_RELIABILITY_VIOLATION": (245, COUNTER, REPEATED, HELD, "6000000000"),
    "DEV_TOTAL_APP_CLOCKS_VIOLATION": (246, COUNTER, REPEATED, HELD, "7000000000"),
    "DEV_TOTAL_BASE_CLOCKS_VIOLATION": (247, COUNTER, REPEATED, HELD, "8000000000"),
    "DEV_FB_TOTAL": (250, GAUGE, OWN, None, "4500"),
    "DEV_FB_USED_PERCENT": (254, GAUGE, OWN, None, "0.250000"),
    "DEV_ECC_CURRENT": (300, GAUGE, REPEATED, None, "0"),
    "DEV_ECC_PENDING": (301, GAUGE, REPEATED, None, "1"),
    "DEV_ECC_SBE_VOL_TOTAL": (310, COUNTER, REPEATED, ECC, "11"),
    "DEV_ECC_DBE_VOL_TOTAL": (311, COUNTER, REPEATED, ECC, "12"),
    "DEV_ECC_SBE_AGG_TOTAL": (312, COUNTER, REPEATED, ECC, "13"),
    "DEV_ECC_DBE_AGG_TOTAL": (313, COUNTER, REPEATED, ECC, "14"),
    "DEV_BANKS_REMAP_ROWS_AVAIL_MAX": (385, GAUGE, REPEATED, SPARE_ROWS, "600"),
    "DEV_BANKS_REMAP_ROWS_AVAIL_HIGH": (386, GAUGE, REPEATED, SPARE_ROWS, "31"),
    "DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL": (387, GAUGE, REPEATED, SPARE_ROWS, "32"),
    "DEV_BANKS_REMAP_ROWS_AVAIL_LOW": (388, GAUGE, REPEATED, SPARE_ROWS, "33"),
    "DEV_BANKS_REMAP_ROWS_AVAIL_NONE": (389, GAUGE, REPEATED, SPARE_ROWS, "34"),
    "DEV_RETIRED_SBE": (390, COUNTER, REPEATED, ECC, "15"),
    "DEV_RETIRED_DBE": (391, COUNTER, REPEATED, ECC, "16"),
    "DEV_RETIRED_PENDING": (392, GAUGE, REPEATED, ECC, "1"),
    "DEV_ROW_REMAP_PENDING": (396, GAUGE, REPEATED, None, "1"),
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (
        409,
        COUNTER,
        REPEATED,
        ReadingGroup.NVLINK_ERRORS,
        "21",
    ),
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (
        419,
        COUNTER,
        REPEATED,
        ReadingGroup.NVLINK_ERRORS,
        "22",
    ),
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": (
        429,
        COUNTER,
        REPEATED,
        ReadingGroup.NVLINK_ERRORS,
        "23",
    ),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (
        439,
        COUNTER,
        REPEATED,
        ReadingGroup.NVLINK_ERRORS,
        "24",
    ),
    "DEV_NVLINK_TX_BANDWIDTH_TOTAL": (843, GAUGE, REPEATED, None, "3"),
    "DEV_NVLINK_RX_BANDWIDTH_TOTAL": (897, GAUGE, REPEATED, None, "5"),
    "PROF_SM_ACTIVE": (1002, GAUGE, OWN, PIPES, "0.002000"),
    "PROF_SM_OCCUPANCY": (1003, GAUGE, OWN, PIPES, "0.003000"),
    "PROF_PIPE_FP64_ACTIVE": (1006, GAUGE, OWN, PIPES, "0.011000"),
    "PROF_PIPE_FP32_ACTIVE": (1007, GAUGE, OWN, PIPES, "0.012000"),
    "PROF_PIPE_FP16_ACTIVE": (1008, GAUGE, OWN, PIPES, "0.013000"),
    "PROF_NVLINK_TX_BYTES": (1011, GAUGE, ABSENT, PIPES, "63963136"),
    "PROF_NVLINK_RX_BYTES": (1012, GAUGE, ABSENT, PIPES, "62914560"),
    "PROF_PIPE_TENSOR_IMMA_ACTIVE": (1013, GAUGE, OWN, PIPES, "0.009000"),
    "PROF_PIPE_TENSOR_HMMA_ACTIVE": (1014, GAUGE, OWN, PIPES, "0.007000"),
    "PROF_PIPE_TENSOR_DFMA_ACTIVE": (1015, GAUGE, OWN, PIPES, "0.006000"),
    "PROF_PIPE_INT_ACTIVE": (1016, GAUGE, OWN, PIPES, "0.004000"),
    "PROF_SM_CYCLES_ELAPSED_TOTAL": (1084, COUNTER, OWN, TOTALS, "248000000000"),
    "PROF_SM_CYCLES_ACTIVE_TOTAL": (1085, COUNTER, OWN, TOTALS, "249000000000"),
    "PROF_MMA_CYCLES_ACTIVE_TOTAL": (1086, COUNTER, OWN, TOTALS, "250000000000"),
    "PROF_DMMA_CYCLES_ACTIVE_TOTAL": (1087, COUNTER, OWN, TOTALS, "251000000000"),
    "PROF_HMMA_CYCLES_ACTIVE_TOTAL": (1088, COUNTER, OWN, TOTALS, "252000000000"),
    "PROF_IMMA_CYCLES_ACTIVE_TOTAL": (1089, COUNTER, OWN, TOTALS, "253000000000"),
    "PROF_DFMA_CYCLES_ACTIVE_TOTAL": (1090, COUNTER, OWN, TOTALS, "254000000000"),
    "PROF_PCIE_TX_BYTES_TOTAL": (1091, COUNTER, ABSENT, TOTALS, "255000000000"),
    "PROF_PCIE_RX_BYTES_TOTAL": (1092, COUNTER, ABSENT, TOTALS, "256000000000"),
    "PROF_INT_CYCLES_ACTIVE_TOTAL": (1093, COUNTER, OWN, TOTALS, "257000000000"),
    "PROF_FP64_CYCLES_ACTIVE_TOTAL": (1094, COUNTER, OWN, TOTALS, "258000000000"),
    "PROF_FP32_CYCLES_ACTIVE_TOTAL": (1095, COUNTER, OWN, TOTALS, "259000000000"),
    "PROF_FP16_CYCLES_ACTIVE_TOTAL": (1096, COUNTER, OWN, TOTALS, "260000000000"),
    "PROF_C2C_TX_ALL_BYTES": (1076, GAUGE, ABSENT, ENGINES, "104857600"),
    "PROF_C2C_TX_DATA_BYTES": (1077, GAUGE, ABSENT, ENGINES, "106954752"),
    "PROF_C2C_RX_ALL_BYTES": (1078, GAUGE, ABSENT, ENGINES, "105906176"),
    "PROF_C2C_RX_DATA_BYTES": (1079, GAUGE, ABSENT, ENGINES, "108003328"),
    # the number is the error's place in LinkError, over 18 links
    "DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS": (1204, COUNTER, REPEATED, LINKS, "0"),
    "DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS": (1205, COUNTER, REPEATED, LINKS, "18"),
    "DEV_NVLINK_COUNT_RX_ERRORS": (1206, COUNTER, REPEATED, LINKS, "36"),
    "DEV_NVLINK_COUNT_RX_REMOTE_ERRORS": (1207, COUNTER, REPEATED, LINKS, "54"),
    "DEV_NVLINK_COUNT_RX_GENERAL_ERRORS": (1208, COUNTER, REPEATED, LINKS, "72"),
    "DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS": (1209, COUNTER, REPEATED, LINKS, "90"),
    "DEV_NVLINK_COUNT_TX_DISCARDS": (1210, COUNTER, REPEATED, LINKS, "108"),
    "DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": (1211, COUNTER, REPEATED, LINKS, "126"),
    "DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": (1212, COUNTER, REPEATED, LINKS, "144"),
    "DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS": (1213, COUNTER, REPEATED, LINKS, "270"),
    "DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS": (1214, COUNTER, REPEATED, LINKS, "180"),
    "DEV_NVLINK_COUNT_EFFECTIVE_ERRORS": (1219, COUNTER, REPEATED, LINKS, "162"),
    "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": (1420, COUNTER, REPEATED, HELD, "1000000001"),
    "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS": (1421, COUNTER, REPEATED, HELD, "3000000000"),
    "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": (1422, COUNTER, REPEATED, HELD, "9000000000"),
    "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": (1423, COUNTER, REPEATED, HELD, "10000000000"),
    "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": (
        1424,
        COUNTER,
        REPEATED,
        HELD,
        "11000000000",
    ),
    "DEV_GET_GPU_RECOVERY_ACTION": (1523, GAUGE, REPEATED, None, "3"),
    "DEV_BAR1_CAPACITY_BYTES": (1600, GAUGE, ABSENT, ReadingGroup.BAR1, "134217728"),
    "DEV_BAR1_USED_BYTES": (1601, GAUGE, ABSENT, ReadingGroup.BAR1, "29360128"),
    "DEV_BAR1_FREE_BYTES": (1602, GAUGE, ABSENT, ReadingGroup.BAR1, "104857600"),
    "DEV_SM_CLOCK_HERTZ": (1603, GAUGE, REPEATED, None, "1980000000"),
    "DEV_MEMORY_CLOCK_HERTZ": (1604, GAUGE, REPEATED, None, "2619000000"),
    "DEV_VIDEO_CLOCK_HERTZ": (1605, GAUGE, REPEATED, CLOCKS, "1545000000"),
    "DEV_SM_APP_CLOCK_HERTZ": (1606, GAUGE, REPEATED, CLOCKS, "1755000000"),
    "DEV_MEMORY_APP_CLOCK_HERTZ": (1607, GAUGE, REPEATED, CLOCKS, "2619000000"),
    "DEV_SM_MAX_CLOCK_HERTZ": (1608, GAUGE, REPEATED, CLOCKS, "1980000000"),
    "DEV_MEMORY_MAX_CLOCK_HERTZ": (1609, GAUGE, REPEATED, CLOCKS, "2620000000"),
    "DEV_VIDEO_MAX_CLOCK_HERTZ": (1610, GAUGE, REPEATED, CLOCKS, "1546000000"),
    "DEV_GPU_ENERGY_JOULES_TOTAL": (1611, COUNTER, REPEATED, None, "57585.599000"),
    "DEV_FAN_SPEED_RATIO": (1612, GAUGE, REPEATED, ReadingGroup.FAN, "0.330000"),
}

# Source: dcgm_fields.h, where links have their fields wherever there was room.
LINK_FIELDS = (*range(440, 446), *range(475, 481), 446, 447, 448, 494, 495, 496)


def of_link(link: int) -> dict[str, Row]:
    """Megabytes each second by the counters of link 0: 1 sent, 2 received."""
    sent, received = link + 1, 2 * (link + 1)
    rate = (GAUGE, REPEATED, LINKS)
    by_gpm = (GAUGE, ABSENT, ENGINES)
    return {
        f"DEV_NVLINK_BANDWIDTH_L{link}": (LINK_FIELDS[link], *rate, str(sent + received)),
        f"DEV_NVLINK_TX_BANDWIDTH_L{link}": (825 + link, *rate, str(sent)),
        f"DEV_NVLINK_RX_BANDWIDTH_L{link}": (879 + link, *rate, str(received)),
        f"PROF_NVLINK_L{link}_TX_BYTES": (1040 + 2 * link, *by_gpm, str((63 + 2 * link) << 20)),
        f"PROF_NVLINK_L{link}_RX_BYTES": (1041 + 2 * link, *by_gpm, str((62 + 2 * link) << 20)),
    }


def of_engines(name: str, field: int, metric: int, count: int) -> dict[str, Row]:
    return {
        f"PROF_{name}{at}_ACTIVE": (
            field + at,
            GAUGE,
            ABSENT,
            ENGINES,
            f"{(metric + at) / 1000:.6f}",
        )
        for at in range(count)
    }


def of_number(name: str, field: int, kind: MetricType, number: int) -> dict[str, Row]:
    return {f"DEV_{name}": (field, kind, REPEATED, NUMBERS, str(7000 + number))}


# Source of names, fields and NVML's numbers: dcgm_fields.cpp and nvml.h.
for name, field, number in (
    ("NVLINK_COUNT_TX_PACKETS", 1200, 201),
    ("NVLINK_COUNT_TX_BYTES", 1201, 202),
    ("NVLINK_COUNT_RX_PACKETS", 1202, 203),
    ("NVLINK_COUNT_RX_BYTES", 1203, 204),
    ("NVLINK_ECC_DATA_ERROR_COUNT_TOTAL", 1220, 160),
    ("PCIE_COUNT_CORRECTABLE_ERRORS", 1501, 173),
    ("C2C_LINK_ERROR_INTR", 1400, 231),
    ("C2C_LINK_ERROR_REPLAY", 1401, 232),
    ("C2C_LINK_ERROR_REPLAY_B2B", 1402, 233),
):
    OPTIONAL |= of_number(name, field, COUNTER, number)
for name, field, number in (
    ("NVLINK_COUNT_SYMBOL_BER", 1215, 222),
    ("NVLINK_COUNT_EFFECTIVE_BER", 1217, 220),
    ("C2C_LINK_COUNT", 285, 170),
    ("C2C_LINK_STATUS", 286, 171),
    ("C2C_MAX_BANDWIDTH", 287, 172),
    ("C2C_LINK_POWER_STATE", 1403, 234),
    ("PWR_SMOOTHING_ENABLED", 1425, 251),
    ("PWR_SMOOTHING_PRIV_LVL", 1426, 252),
    ("PWR_SMOOTHING_IMM_RAMP_DOWN_ENABLED", 1427, 253),
    ("PWR_SMOOTHING_MAX_NUM_PRESET_PROFILES", 1433, 259),
    ("PWR_SMOOTHING_PROFILE_RAMP_DOWN_HYST_VAL", 1437, 263),
    ("PWR_SMOOTHING_ACTIVE_PRESET_PROFILE", 1438, 264),
    ("PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL", 1442, 268),
):
    OPTIONAL |= of_number(name, field, GAUGE, number)
for at in range(16):
    OPTIONAL |= of_number(f"NVLINK_COUNT_FEC_HISTORY_{at}", 1404 + at, COUNTER, 235 + at)
for name, field, number in (
    ("APPLIED_TMP_CEIL", 1428, 254),
    ("APPLIED_TMP_FLOOR", 1429, 255),
    ("MAX_PERCENT_TMP_FLOOR_SETTING", 1430, 256),
    ("MIN_PERCENT_TMP_FLOOR_SETTING", 1431, 257),
    ("HW_CIRCUITRY_PERCENT_LIFETIME_REMAINING", 1432, 258),
    ("PROFILE_PERCENT_TMP_FLOOR", 1434, 260),
    ("PROFILE_RAMP_UP_RATE", 1435, 261),
    ("PROFILE_RAMP_DOWN_RATE", 1436, 262),
    ("ADMIN_OVERRIDE_PERCENT_TMP_FLOOR", 1439, 265),
    ("ADMIN_OVERRIDE_RAMP_UP_RATE", 1440, 266),
    ("ADMIN_OVERRIDE_RAMP_DOWN_RATE", 1441, 267),
):
    row = (field, GAUGE, REPEATED, NUMBERS, f"{7000 + number}.000000")
    OPTIONAL[f"DEV_PWR_SMOOTHING_{name}"] = row
OPTIONAL |= {
    "DEV_P2P_NVLINK_STATUS": (64, GAUGE, REPEATED, ReadingGroup.P2P, "2"),
    "DEV_CPU_AFFINITY_0": (70, GAUGE, REPEATED, BOARD, "70"),
    "DEV_CPU_AFFINITY_1": (71, GAUGE, REPEATED, BOARD, "71"),
    "DEV_CPU_AFFINITY_2": (72, GAUGE, REPEATED, BOARD, "72"),
    "DEV_CPU_AFFINITY_3": (73, GAUGE, REPEATED, BOARD, "-73"),
    "DEV_MEM_AFFINITY_0": (86, GAUGE, REPEATED, BOARD, "86"),
    "DEV_MEM_AFFINITY_1": (87, GAUGE, REPEATED, BOARD, "87"),
    "DEV_MEM_AFFINITY_2": (88, GAUGE, REPEATED, BOARD, "88"),
    "DEV_MEM_AFFINITY_3": (89, GAUGE, REPEATED, BOARD, "-9223372036854775719"),
    "DEV_INFOROM_CONFIG_CHECK": (83, GAUGE, REPEATED, BOARD, "4000000083"),
    "DEV_MEMORY_UNREPAIRABLE_FLAG": (1507, GAUGE, REPEATED, BOARD, "1"),
    "DEV_THRESHOLD_SRM": (346, GAUGE, REPEATED, BOARD, "1"),
    "DEV_PLATFORM_CHASSIS_SLOT_NUMBER": (573, GAUGE, REPEATED, BOARD, "173"),
    "DEV_PLATFORM_TRAY_INDEX": (574, GAUGE, REPEATED, BOARD, "174"),
    "DEV_PLATFORM_HOST_ID": (575, GAUGE, REPEATED, BOARD, "175"),
    "DEV_PLATFORM_PEER_TYPE": (576, GAUGE, REPEATED, BOARD, "176"),
    "DEV_PLATFORM_MODULE_ID": (577, GAUGE, REPEATED, BOARD, "177"),
    "PROF_HOSTMEM_CACHE_HIT": (1080, GAUGE, OWN, ReadingGroup.CACHES, "60"),
    "PROF_HOSTMEM_CACHE_MISS": (1081, GAUGE, OWN, ReadingGroup.CACHES, "61"),
    "PROF_PEERMEM_CACHE_HIT": (1082, GAUGE, OWN, ReadingGroup.CACHES, "62"),
    "PROF_PEERMEM_CACHE_MISS": (1083, GAUGE, OWN, ReadingGroup.CACHES, "63"),
}
# Source of names, fields and NVML's numbers: dcgm_fields.h, DcgmCacheManager.cpp and nvml.h.
for place, location, numbers in (
    ("L1", 0, (314, 315, 324, 325)),
    ("L2", 1, (316, 317, 326, 327)),
    ("DEV", 2, (318, 319, 328, 329)),
    ("REG", 3, (320, 321, 330, 331)),
    ("TEX", 4, (322, 323, 332, 333)),
    ("SHM", 5, (334, 335, 338, 339)),
    ("CBU", 6, (336, 337, 340, 341)),
    ("SRM", 7, (342, 343, 344, 345)),
):
    for counter, field, count in zip(
        ("SBE_VOL", "DBE_VOL", "SBE_AGG", "DBE_AGG"),
        numbers,
        (100_000, 100_100, 100_010, 100_110),
        strict=True,
    ):
        row = (field, COUNTER, REPEATED, ReadingGroup.ECC_BY_LOCATION, str(count + location))
        OPTIONAL[f"DEV_ECC_{counter}_{place}"] = row
ERROR_FIELDS = {
    "CRC_FLIT": (400, 401, 402, 403, 404, 405, 451, 452, 453, 454, 455, 456,
                 406, 407, 408, 481, 482, 483),
    "CRC_DATA": (410, 411, 412, 413, 414, 415, 457, 458, 459, 460, 461, 462,
                 416, 417, 418, 484, 485, 486),
    "REPLAY": (420, 421, 422, 423, 424, 425, 463, 464, 465, 466, 467, 468,
               426, 427, 428, 487, 488, 489),
    "RECOVERY": (430, 431, 432, 433, 434, 435, 469, 470, 471, 472, 473, 474,
                 436, 437, 438, 491, 492, 493),
}  # fmt: skip
for kind, error in (("REPLAY", 0), ("RECOVERY", 1), ("CRC_FLIT", 2), ("CRC_DATA", 3)):
    for link, field in enumerate(ERROR_FIELDS[kind]):
        written_count = str(200_000 + 10 * link + error)
        row = (field, COUNTER, REPEATED, ReadingGroup.NVLINK_ERRORS_BY_LINK, written_count)
        OPTIONAL[f"DEV_NVLINK_{kind}_ERROR_COUNT_L{link}"] = row
for link in range(18):
    OPTIONAL |= of_link(link)
OPTIONAL |= of_engines("NVDEC", 1017, 30, 8)
OPTIONAL |= of_engines("NVJPG", 1025, 40, 8)
OPTIONAL |= of_engines("NVOFA", 1033, 50, 2)

PCI_ADDRESS = 57
"""Field of the one label that every GPU has."""

FAMILIES = {family.name.removeprefix("DCGM_FI_DEV_"): family for family in CATALOG}


def read_of(gpu: GpuSnapshot, sample: GpuSample, **facts: Any) -> DcgmReading:
    """What the values of this GPU are computed from."""
    return DcgmReading(sample=sample, gpu=gpu, nvidia=build.nvidia(gpu), **facts)


def reading(**readings: Any) -> DcgmReading:
    gpu = build.gpu()
    sample = build.sample(gpu, **readings)
    return read_of(gpu, sample, memory=sample.memory)


def text(family: str, of: DcgmReading) -> str | None:
    return written(FAMILIES[family], of)


def written(family: DcgmFamily, of: DcgmReading) -> str | None:
    (only,) = family.texts([of])
    return None if only is None else only.decode()


def full_reading() -> DcgmReading:
    """Of a GPU that tells everything, ten seconds after the sample before."""
    gpu = everything.gpu()
    before, now = everything.sample(gpu), everything.sample(gpu, at_seconds=110.0)
    return read_of(
        gpu,
        now,
        driver=DRIVER,
        gpu_count=8,
        before=before,
        memory=now.memory,
        xid=31,
        profiling=dict(now.profiling),
        numbers=dict(now.numbers),
        memory_errors=dict(now.memory_errors),
        link_errors=dict(now.link_errors),
        nvlink_p2p={index: int(index != 1) for index in range(1, 8)},
        links={link.link: link for link in now.links},
        links_before={link.link: link for link in before.links},
    )


def nvlink(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    gpu = build.gpu()
    both = read_of(gpu, build.sample(gpu, **now), before=build.sample(gpu, **before))
    return text("NVLINK_BANDWIDTH_TOTAL", both)


def test_the_default_set_is_dcgm_exporters_own_with_its_types_and_units() -> None:
    full = full_reading()

    assert {
        family.name: (family.field, family.kind, family.under_mig, written(family, full))
        for family in DEFAULT_FAMILIES
        if isinstance(family, DcgmFamily)
    } == {f"DCGM_FI_{name}": row for name, row in DEFAULTS.items()}


def test_every_optional_family_has_its_type_unit_and_group() -> None:
    full = full_reading()

    assert {
        family.name: (
            family.field,
            family.kind,
            family.under_mig,
            family.group,
            written(family, full),
        )
        for family in CATALOG
        if family.name not in {default.name for default in DEFAULT_FAMILIES}
    } == {f"DCGM_FI_{name}": row for name, row in OPTIONAL.items()}


def test_only_profiling_families_of_the_default_set_need_readings_of_their_own() -> None:
    assert {family.name[5:12]: family.group for family in DEFAULT_FAMILIES} == {
        "FI_DEV_": None,
        "FI_PROF": PROFILING,
    }


def test_families_are_declared_in_the_order_of_their_field_ids() -> None:
    fields = [family.field for family in CATALOG]

    assert fields == sorted(set(fields))


def test_dcgm_exporter_s_own_families_are_declared_as_it_does_it_but_for_their_type() -> None:
    """Source of names, and of numbers up to 9004: its exporter_counters.go.

    Those of a window and the state of pairs fall again, so they are no counters.
    """
    assert {row.name: (row.field, row.kind, row.under_mig, row.group) for row in COUNTED} == {
        "DCGM_EXP_XID_ERRORS_COUNT": (9001, GAUGE, OWN, None),
        "DCGM_EXP_CLOCK_EVENTS_COUNT": (9002, GAUGE, REPEATED, EVENTS),
        "DCGM_EXP_P2P_STATUS": (9004, GAUGE, ABSENT, ReadingGroup.P2P),
        "DCGM_EXP_CLOCK_EVENTS_TOTAL": (9005, COUNTER, REPEATED, EVENTS),
        "DCGM_EXP_XID_ERRORS_TOTAL": (9006, COUNTER, OWN, None),
    }


def test_no_name_of_a_family_or_label_is_another_s_too() -> None:
    rows: list[AnyFamily | LabelRow] = [*CATALOG, *COUNTED, *LABEL_ROWS]
    names = Counter(name for row in rows for name in (row.name, row.renamed) if name is not None)

    assert [name for name, times in names.items() if times > 1] == []


RENAMED = {
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_MEMORY_TEMP": "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
    "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_XID_ERRORS": "DCGM_FI_DEV_XID_ERROR",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL",
    "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L9": "DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_L9",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
    "DCGM_FI_PROF_SM_OCCUPANCY": "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
    "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
    "DCGM_FI_PROF_NVDEC3_ACTIVE": "DCGM_FI_PROF_NVDEC_UTIL_3_RATIO",
    "DCGM_FI_DEV_NVLINK_COUNT_TX_DISCARDS": "DCGM_FI_DEV_NVLINK_TX_DISCARD_TOTAL",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS",
    "DCGM_FI_DEV_COUNT": "DCGM_FI_SYSTEM_GPU_QUANTITY",
    "DCGM_FI_DEV_ECC_CURRENT": "DCGM_FI_DEV_ECC_MODE",
    "DCGM_FI_DEV_PERSISTENCE_MODE": "DCGM_FI_DEV_GPU_PERSISTENCE_MODE",
    "DCGM_FI_DEV_COMPUTE_MODE": "DCGM_FI_DEV_GPU_COMPUTE_MODE",
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW": "DCGM_FI_DEV_BANK_REMAP_AVAIL_LOW",
    "DCGM_FI_DEV_BRAND": "DCGM_FI_DEV_GPU_BRAND",
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": "DCGM_FI_DEV_INFOROM_IMAGE_VERSION",
    "DCGM_FI_DEV_OEM_INFOROM_VER": "DCGM_FI_DEV_INFOROM_OEM_VERSION",
    "DCGM_FI_DRIVER_VERSION": "DCGM_FI_SYSTEM_DRIVER_VERSION",
    "DCGM_FI_DEV_SM_CLOCK": None,
}
"""By hand from DCGM 4.6.1's dcgm_fields.h."""


@pytest.mark.parametrize("name", RENAMED)
def test_what_dcgm_renamed_is_known_by_both_names(name: str) -> None:
    rows: list[AnyFamily | LabelRow] = [*CATALOG, *LABEL_ROWS]

    assert [row.renamed for row in rows if row.name == name] == [RENAMED[name]]


def test_label_rows_are_what_the_gpu_is_as_dcgm_writes_it() -> None:
    texts = {row.name: row.value(full_reading()) for row in LABEL_ROWS}

    assert texts == {
        "DCGM_FI_DRIVER_VERSION": "550.54.15",
        "DCGM_FI_NVML_VERSION": "12.550.54.15",
        "DCGM_FI_DEV_NAME": "MOCKMODEL",
        "DCGM_FI_DEV_BRAND": "NVIDIA",
        "DCGM_FI_DEV_SERIAL": "1322621012345",
        "DCGM_FI_DEV_UUID": "GPU-00000000-0000-0000-0000-000000000000",
        "DCGM_FI_DEV_OEM_INFOROM_VER": "2.1",
        "DCGM_FI_DEV_PCI_BUSID": "00000000:10:00.0",
        "DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR": "GPU-00000000-0000-0000-0000-000000000000",
        "DCGM_FI_DEV_ECC_INFOROM_VER": "7.16",
        "DCGM_FI_DEV_POWER_INFOROM_VER": "3.2",
        "DCGM_FI_DEV_INFOROM_IMAGE_VER": "G520.0200.00.05",
        "DCGM_FI_DEV_VBIOS_VERSION": "96.00.74.00.09",
        "DCGM_FI_DEV_FABRIC_CLUSTER_UUID": "11111111-2222-3333-4444-555555555555",
        "DCGM_FI_DEV_PLATFORM_INFINIBAND_GUID": "0x00000000000005a1",
        "DCGM_FI_DEV_PLATFORM_CHASSIS_SERIAL_NUMBER": "C572",
    }
    assert [row.name for row in DEFAULT_LABELS] == ["DCGM_FI_DRIVER_VERSION"]


def test_a_label_that_nobody_knows_is_no_label() -> None:
    silent = build.silent()
    nothing = read_of(silent, unread_sample(silent.bus_id))

    assert {row.value(nothing) for row in LABEL_ROWS if row.field != PCI_ADDRESS} == {None}


@pytest.mark.parametrize(
    "family", [it for it in CATALOG if it.under_mig is not OWN], ids=lambda it: it.name
)
def test_a_number_is_a_label_as_it_is_written(family: DcgmFamily) -> None:
    full = full_reading()
    row = family.as_label()

    assert row.value(full) == written(family, full)
    assert (row.group, row.of_instances) == (family.group, family.under_mig is REPEATED)


@pytest.mark.parametrize(("nvml", "dcgm"), [(0, "0"), (2, "1"), (3, "2")])
def test_the_compute_mode_has_dcgm_s_numbers(nvml: int, dcgm: str) -> None:
    """Source: DCGM_CONFIG_COMPUTEMODE_* of dcgm_structs.h: default, prohibited, exclusive."""
    board = everything.sample(everything.gpu()).board
    assert board is not None

    assert text("COMPUTE_MODE", reading(board=replace(board, compute_mode=nvml))) == dcgm


def test_mig_is_off_where_a_gpu_has_none_and_unknown_where_it_did_not_say() -> None:
    def of(reason: Reason) -> str | None:
        gap = Gap(what="mig", reason=reason, source="nvmlDeviceGetMigMode")
        gpu = build.gpu(mig=None, gaps=(gap,))
        return text("MIG_MODE", read_of(gpu, build.sample(gpu)))

    said = {reason: of(reason) for reason in Reason}
    assert said == dict.fromkeys(Reason) | {Reason.UNSUPPORTED: "0"}


def test_memory_is_whole_mebibytes_rounded_down() -> None:
    use = MemoryUse(free_bytes=3 * build.MIB - 1, used_bytes=build.MIB, reserved_bytes=None)

    texts = [text(name, reading(memory=use)) for name in ("FB_FREE", "FB_USED", "FB_RESERVED")]

    assert texts == ["2", "1", None]


def test_memory_as_a_whole_is_known_before_driver_510_too() -> None:
    use = MemoryUse(free_bytes=3 * build.MIB, used_bytes=build.MIB)

    assert text("FB_TOTAL", reading(memory=use)) == "4"


def test_half_of_a_memory_in_use_is_half() -> None:
    use = MemoryUse(free_bytes=5, used_bytes=5, reserved_bytes=90)

    assert text("FB_USED_PERCENT", reading(memory=use)) == "0.500000"


def test_no_share_of_a_memory_without_size_is_in_use() -> None:
    use = MemoryUse(free_bytes=0, used_bytes=0, reserved_bytes=5)

    assert text("FB_USED_PERCENT", reading(memory=use)) is None


@pytest.mark.parametrize("family", CATALOG, ids=lambda family: family.name)
def test_a_reading_that_a_device_does_not_give_is_no_value(family: DcgmFamily) -> None:
    gpu = build.silent(index=None)
    never: dict[str, Any] = {
        name: () if isinstance(getattr(build.sample(gpu), name), tuple) else None
        for name in build.sample(gpu).__slots__
        if name not in ("bus_id", "at_seconds")
    }
    nothing = read_of(gpu, build.sample(gpu, **never))

    assert written(family, nothing) == ("0" if family.field == 230 else None)


@pytest.mark.parametrize(
    ("family", "readings"),
    [
        ("SM_CLOCK", {"sm_clock_hertz": 0xFFFFFFFF * 1_000_000}),
        ("GPU_TEMP", {"gpu_celsius": 0xFFFFFFFF}),
        ("MEMORY_TEMP", {"memory_celsius": 201}),
        ("GPU_TEMP", {"gpu_celsius": -1}),
        ("POWER_USAGE", {"power_watts": 0xFFFFFFFF / 1000}),
        ("POWER_USAGE", {"power_watts": math.nan}),
        ("POWER_USAGE", {"power_watts": math.inf}),
        ("TOTAL_ENERGY_CONSUMPTION", {"energy_joules": 0xFFFFFFFFFFFFFFFF / 1000}),
        ("TOTAL_ENERGY_CONSUMPTION", {"energy_joules": 0x7FFFFFFFFFFFFFF0 / 1000}),
        ("PCIE_REPLAY_COUNTER", {"pcie_replays": 0xFFFFFFFF}),
        ("GPU_UTIL", {"gpu_busy_ratio": 1.01}),
        ("GPU_UTIL", {"gpu_busy_ratio": math.nan}),
        ("FB_USED", {"memory": MemoryUse(free_bytes=0, used_bytes=0xFFFFFFFFFFFFFFFF)}),
        ("PSTATE", {"performance_state": 32}),
        ("PCIE_LINK_GEN", {"pcie": build.only(Pcie, generation=0xFFFFFFFF)}),
        ("CLOCK_THROTTLE_REASONS", {"clock_event_reasons": 2**64 - 1}),
    ],
)
def test_an_impossible_reading_is_no_value(family: str, readings: dict[str, Any]) -> None:
    assert text(family, reading(**readings)) is None


@pytest.mark.parametrize("value", [-0.001, 1.2, math.nan, math.inf, 0x7FF0000000000001])
def test_a_profiling_ratio_that_cannot_be_is_no_value(value: float) -> None:
    broken = structs.replace(full_reading(), profiling={1: value})

    assert text("DCGM_FI_PROF_GR_ENGINE_ACTIVE", broken) is None


def test_zero_that_was_measured_is_zero() -> None:
    idle = structs.replace(full_reading(), profiling={1: 0.0, 20: 0.0})

    assert text("DCGM_FI_PROF_GR_ENGINE_ACTIVE", idle) == "0.000000"
    assert text("DCGM_FI_PROF_PCIE_TX_BYTES", idle) == "0"


@pytest.mark.parametrize(
    ("state", "status", "expected"), [(0, 0, "0"), (1, 0, "1"), (3, 0, "3"), (3, 18, "4")]
)
def test_the_fabric_s_status_tells_a_registration_that_failed(
    state: int, status: int, expected: str
) -> None:
    fabric = Fabric(state=state, status=status, cluster_uuid="", clique_id=0)
    joined = structs.replace(full_reading(), nvidia=build.nvidia(build.gpu(fabric=fabric)))

    assert text("FABRIC_MANAGER_STATUS", joined) == expected


def test_a_gpu_that_has_not_joined_a_fabric_is_in_no_clique() -> None:
    fabric = Fabric(state=2, status=0, cluster_uuid="", clique_id=0, health_mask=0)
    joining = structs.replace(full_reading(), nvidia=build.nvidia(build.gpu(fabric=fabric)))

    texts = [text(name, joining) for name in ("FABRIC_CLIQUE_ID", "FABRIC_HEALTH_MASK")]

    assert texts == [None, None]


def test_nvlink_bandwidth_is_thousands_of_kibibytes_a_second_over_both_directions() -> None:
    before = {"at_seconds": 10.0, "nvlink_received_bytes": 500, "nvlink_sent_bytes": 500}
    now = {
        "at_seconds": 12.0,
        "nvlink_received_bytes": 500 + 1024 * 1000 * 2 * 30,
        "nvlink_sent_bytes": 500 + 1024 * 1000 * 2 * 12 + 1024 * 1999,
    }

    assert nvlink(before, now) == "42"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"nvlink_sent_bytes": None}, {"at_seconds": 110.0, "nvlink_sent_bytes": 10**12}),
        ({"nvlink_sent_bytes": 10**12}, {"at_seconds": 110.0, "nvlink_sent_bytes": 10**11}),
        ({}, {"nvlink_sent_bytes": 10**12}),
    ],
    ids=["counters were not known", "counters began again", "no time went by"],
)
def test_nvlink_bandwidth_is_zero_where_there_is_nothing_to_compare(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    assert nvlink(before, now) == "0"


def test_nvlink_bandwidth_is_zero_with_the_first_sample() -> None:
    assert text("NVLINK_BANDWIDTH_TOTAL", reading()) == "0"


def test_a_link_s_bandwidth_is_zero_with_its_first_sample_and_nothing_without_the_link() -> None:
    first = structs.replace(full_reading(), links_before={})

    assert text("NVLINK_BANDWIDTH_L3", first) == "0"
    assert text("NVLINK_BANDWIDTH_L3", structs.replace(first, links={})) is None


def test_errors_over_all_links_are_not_told_where_one_link_does_not_count_them() -> None:
    full = full_reading()
    partly = structs.replace(full, links={**full.links, 17: LinkCounters(link=17)})

    assert text("NVLINK_COUNT_RX_ERRORS", partly) is None


def pcie(**before: Any) -> str | None:
    """What is told of a GPU without GPM that sent 5000 bytes in ten seconds."""
    gpu = build.gpu()
    now = build.sample(gpu, at_seconds=110.0, pcie=build.only(Pcie, sent_bytes=6000))
    then = build.sample(gpu, **({"pcie": build.only(Pcie, sent_bytes=1000)} | before))
    return text("DCGM_FI_PROF_PCIE_TX_BYTES", read_of(gpu, now, before=then))


def test_a_pcie_link_without_traffic_says_0() -> None:
    assert pcie(pcie=build.only(Pcie, sent_bytes=6000)) == "0"


def test_rates_are_right_below_a_second_too() -> None:
    assert pcie(at_seconds=109.5) == "10000"
    assert (
        nvlink({"at_seconds": 9.5}, {"at_seconds": 10.0, "nvlink_sent_bytes": 1024 * 1000 * 2})
        == "4"
    )


def test_without_gpm_pcie_traffic_is_what_was_counted_since_the_sample_before() -> None:
    assert pcie() == "500"


@pytest.mark.parametrize(
    "before",
    [
        {"pcie": None},
        {"pcie": build.only(Pcie)},
        {"pcie": build.only(Pcie, sent_bytes=6001)},
        {"at_seconds": 110.0},
    ],
    ids=["not read", "not counted", "counters began again", "no time went by"],
)
def test_pcie_traffic_that_cannot_be_known_is_not_told(before: dict[str, Any]) -> None:
    assert pcie(**before) is None
