"""The DCGM metric families this agent serves: each declared once, in the order they appear.

Names, types, units and the behaviour under MIG are dcgm-exporter's, so that dashboards
and alerts keep working; the help texts are our own. Source: dcgm-exporter's
``default-counters.csv``; field ids in DCGM's ``dcgm_fields.h``, levels in ``dcgm_fields.cpp``.
"""

from __future__ import annotations

from exporters.family import (
    Family,
    Kind,
    UnderMig,
    nvlink_bandwidth,
    of_memory,
    of_rows,
    of_sample,
    xid_attributes,
)

MEGAHERTZ = 1e6
MILLIJOULE = 1e-3
PERCENT = 1e-2

# Ceilings. NVML says "unknown" with all bits set, DCGM with numbers from 2^63 - 16 up; both lie
# above these, and no device is near them.
_MEGAHERTZ_MOST = 100_000
_CELSIUS_MOST = 200  # DCGM's own limit
_WATTS_MOST = 100_000
_PERCENT_MOST = 100
_COUNT_MOST = 2**32 - 2
_MIB_MOST = 2**32
_TOTAL_MOST = 2**63 - 17

CATALOG: tuple[Family, ...] = (
    Family(
        field=100,
        name="DCGM_FI_DEV_SM_CLOCK",
        kind=Kind.GAUGE,
        help="Clock of the streaming multiprocessors in MHz.",
        value=of_sample(lambda sample: sample.sm_clock_hertz, MEGAHERTZ),
        most=_MEGAHERTZ_MOST,
    ),
    Family(
        field=101,
        name="DCGM_FI_DEV_MEM_CLOCK",
        kind=Kind.GAUGE,
        help="Clock of the memory in MHz.",
        value=of_sample(lambda sample: sample.memory_clock_hertz, MEGAHERTZ),
        most=_MEGAHERTZ_MOST,
    ),
    Family(
        field=140,
        name="DCGM_FI_DEV_MEMORY_TEMP",
        kind=Kind.GAUGE,
        help="Temperature of the memory in degrees Celsius.",
        value=of_sample(lambda sample: sample.memory_celsius),
        most=_CELSIUS_MOST,
    ),
    Family(
        field=150,
        name="DCGM_FI_DEV_GPU_TEMP",
        kind=Kind.GAUGE,
        help="Temperature of the GPU in degrees Celsius.",
        value=of_sample(lambda sample: sample.gpu_celsius),
        most=_CELSIUS_MOST,
    ),
    Family(
        field=155,
        name="DCGM_FI_DEV_POWER_USAGE",
        kind=Kind.GAUGE,
        help="Power the board draws in watts.",
        value=of_sample(lambda sample: sample.power_watts),
        most=_WATTS_MOST,
        decimals=True,
    ),
    Family(
        field=156,
        name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        kind=Kind.COUNTER,
        help="Energy used since the driver was loaded in millijoules.",
        value=of_sample(lambda sample: sample.energy_joules, MILLIJOULE),
        most=_TOTAL_MOST,
    ),
    Family(
        field=202,
        name="DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        kind=Kind.COUNTER,
        help="PCIe packets that had to be sent again.",
        value=of_sample(lambda sample: sample.pcie_replays),
        most=_COUNT_MOST,
    ),
    Family(
        field=203,
        name="DCGM_FI_DEV_GPU_UTIL",
        kind=Kind.GAUGE,
        help="Share of time in which a kernel ran, in percent.",
        value=of_sample(lambda sample: sample.gpu_busy_ratio, PERCENT),
        most=_PERCENT_MOST,
        under_mig=UnderMig.ABSENT,
    ),
    Family(
        field=204,
        name="DCGM_FI_DEV_MEM_COPY_UTIL",
        kind=Kind.GAUGE,
        help="Share of time in which memory was read or written, in percent.",
        value=of_sample(lambda sample: sample.memory_busy_ratio, PERCENT),
        most=_PERCENT_MOST,
        under_mig=UnderMig.ABSENT,
    ),
    Family(
        field=206,
        name="DCGM_FI_DEV_ENC_UTIL",
        kind=Kind.GAUGE,
        help="Use of the video encoders in percent.",
        value=of_sample(lambda sample: sample.encoder_busy_ratio, PERCENT),
        most=_PERCENT_MOST,
        under_mig=UnderMig.ABSENT,
    ),
    Family(
        field=207,
        name="DCGM_FI_DEV_DEC_UTIL",
        kind=Kind.GAUGE,
        help="Use of the video decoders in percent.",
        value=of_sample(lambda sample: sample.decoder_busy_ratio, PERCENT),
        most=_PERCENT_MOST,
        under_mig=UnderMig.ABSENT,
    ),
    Family(
        field=230,
        name="DCGM_FI_DEV_XID_ERRORS",
        kind=Kind.GAUGE,
        help="Code of the newest XID error since this agent started; 0 before any.",
        value=lambda reading: reading.xid,
        most=_COUNT_MOST,
        under_mig=UnderMig.OWN,
        attributes=xid_attributes,
    ),
    Family(
        field=251,
        name="DCGM_FI_DEV_FB_FREE",
        kind=Kind.GAUGE,
        help="Frame buffer that is free in MiB.",
        value=of_memory(lambda memory: memory.free_bytes),
        most=_MIB_MOST,
        under_mig=UnderMig.OWN,
    ),
    Family(
        field=252,
        name="DCGM_FI_DEV_FB_USED",
        kind=Kind.GAUGE,
        help="Frame buffer in use, without what the driver reserves, in MiB.",
        value=of_memory(lambda memory: memory.used_bytes),
        most=_MIB_MOST,
        under_mig=UnderMig.OWN,
    ),
    Family(
        field=253,
        name="DCGM_FI_DEV_FB_RESERVED",
        kind=Kind.GAUGE,
        help="Frame buffer that the driver reserves in MiB.",
        value=of_memory(lambda memory: memory.reserved_bytes),
        most=_MIB_MOST,
        under_mig=UnderMig.OWN,
    ),
    Family(
        field=393,
        name="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        kind=Kind.COUNTER,
        help="Memory rows replaced after uncorrectable errors.",
        value=of_rows(lambda rows: rows.uncorrectable),
        most=_COUNT_MOST,
    ),
    Family(
        field=394,
        name="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        kind=Kind.COUNTER,
        help="Memory rows replaced after correctable errors.",
        value=of_rows(lambda rows: rows.correctable),
        most=_COUNT_MOST,
    ),
    Family(
        field=395,
        name="DCGM_FI_DEV_ROW_REMAP_FAILURE",
        kind=Kind.GAUGE,
        help="1 where a memory row could not be replaced, else 0.",
        value=of_rows(lambda rows: rows.failed),
        most=1,
    ),
    Family(
        field=449,
        name="DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        # A rate, yet upstream says counter: queries people already have rely on neither.
        kind=Kind.COUNTER,
        help="Data over all NVLinks, both directions, in the last interval: a rate in MB/s.",
        value=nvlink_bandwidth,
        most=_COUNT_MOST,
    ),
    Family(
        field=526,
        name="DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        kind=Kind.GAUGE,
        help="1 where a vGPU licence is held, else 0.",
        value=of_sample(lambda sample: sample.vgpu_licensed),
        most=1,
    ),
)
