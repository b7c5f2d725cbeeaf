# SPDX-License-Identifier: Apache-2.0
"""Families of errors, and of what holds clocks down."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from discovery.sample import EccErrors, HeldDown, ReadingGroup
from exporters.dcgm.dcgm_family import (
    COUNT_MOST,
    MASK_MOST,
    TOTAL_MOST,
    Counted,
    DcgmFamily,
    UnderMig,
    Value,
)
from exporters.dcgm.family_values import NANOSECOND, of_part, of_sample
from exporters.dcgm.windows import Event, Span
from exporters.dcgm.xid_messages import xid_attributes
from exporters.prometheus_text import MetricType

_ecc = partial(
    DcgmFamily, kind=MetricType.COUNTER, most=TOTAL_MOST, group=ReadingGroup.ECC, gpus="with ECC on"
)
_retired = partial(
    DcgmFamily,
    kind=MetricType.COUNTER,
    most=COUNT_MOST,
    group=ReadingGroup.ECC,
    gpus="before Ampere, with ECC",
)
_rows = partial(DcgmFamily, most=COUNT_MOST, gpus="Ampere and later, with ECC")

_HELD_DOWN: tuple[tuple[int, str, str, Callable[[HeldDown], float | None]], ...] = (
    (240, "POWER_VIOLATION", "power held clocks down, in nanoseconds", lambda held: held.power),
    (241, "THERMAL_VIOLATION", "heat held clocks down, in nanoseconds", lambda held: held.thermal),
    (242, "SYNC_BOOST_VIOLATION", "the slowest GPU of a sync boost group held clocks down, in ns",
     lambda held: held.sync_boost),
    (243, "BOARD_LIMIT_VIOLATION", "a limit of the board held clocks down, in nanoseconds",
     lambda held: held.board_limit),
    (244, "LOW_UTIL_VIOLATION", "clocks were low since there was little to do, in nanoseconds",
     lambda held: held.low_utilization),
    (245, "RELIABILITY_VIOLATION", "the board's reliability held clocks down, in nanoseconds",
     lambda held: held.reliability),
    (246, "TOTAL_APP_CLOCKS_VIOLATION",
     "clocks were below the application clocks, in nanoseconds",
     lambda held: held.application_clocks),
    (247, "TOTAL_BASE_CLOCKS_VIOLATION", "clocks were below the base clocks, in nanoseconds",
     lambda held: held.base_clocks),
    (1420, "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
     "the power limit held clocks down, in nanoseconds", lambda held: held.power),
    (1421, "CLOCKS_EVENT_REASON_SYNC_BOOST_NS",
     "the slowest GPU of a sync boost group held clocks down, in nanoseconds",
     lambda held: held.sync_boost),
    (1422, "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
     "the driver, for heat, held clocks down, in nanoseconds", lambda held: held.software_thermal),
    (1423, "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
     "the board, for heat, held clocks down, in nanoseconds", lambda held: held.hardware_thermal),
    (1424, "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
     "the system's power brake held clocks down, in nanoseconds", lambda held: held.power_brake),
)  # fmt: skip
"""Field, name, in words, where it is read. NVML counts 1420 and 1421 as its policies too."""

_LOCATIONS: tuple[tuple[str, int, tuple[int, int, int, int], str], ...] = (
    ("L1", 0, (314, 315, 324, 325), "the first cache"),
    ("L2", 1, (316, 317, 326, 327), "the second cache"),
    ("DEV", 2, (318, 319, 328, 329), "the device memory"),
    ("REG", 3, (320, 321, 330, 331), "the registers"),
    ("TEX", 4, (322, 323, 332, 333), "the texture memory"),
    ("SHM", 5, (334, 335, 338, 339), "the shared memory"),
    ("CBU", 6, (336, 337, 340, 341), "the unit of branches"),
    ("SRM", 7, (342, 343, 344, 345), "the SRAM"),
)
"""Name, NVML_MEMORY_LOCATION_*, the fields of :data:`_COUNTERS`, in words."""
_COUNTERS: tuple[tuple[str, int, int, str], ...] = (
    ("SBE_VOL", 0, 0, "corrected, since the driver was loaded"),
    ("DBE_VOL", 1, 0, "could not correct, since the driver was loaded"),
    ("SBE_AGG", 0, 1, "corrected, in the GPU's whole life"),
    ("DBE_AGG", 1, 1, "could not correct, in the GPU's whole life"),
)
"""Name, NVML_MEMORY_ERROR_TYPE_*, NVML_{VOLATILE,AGGREGATE}_ECC, in words."""


def _memory_errors(key: tuple[int, int, int]) -> Value:
    return lambda reading: reading.memory_errors.get(key)


_ECC_TOTALS: tuple[tuple[int, str, str, Callable[[EccErrors], int | None]], ...] = (
    (310, "SBE_VOL", "corrected since the driver was loaded", lambda ecc: ecc.corrected_volatile),
    (311, "DBE_VOL", "could not correct since the driver was loaded",
     lambda ecc: ecc.uncorrected_volatile),
    (312, "SBE_AGG", "corrected in the GPU's whole life", lambda ecc: ecc.corrected_aggregate),
    (313, "DBE_AGG", "could not correct in the GPU's whole life",
     lambda ecc: ecc.uncorrected_aggregate),
)  # fmt: skip
"""Field, name, in words, where it is read."""

FAMILIES: tuple[DcgmFamily, ...] = (
    DcgmFamily(
        field=112,
        name="DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        renamed="DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        help="Bits that tell what holds clocks down now.",
        value=of_sample(lambda sample: sample.clock_event_reasons),
        most=MASK_MOST,
        group=ReadingGroup.CLOCK_EVENTS,
    ),
    DcgmFamily(
        field=230,
        name="DCGM_FI_DEV_XID_ERRORS",
        renamed="DCGM_FI_DEV_XID_ERROR",
        help="Code of the newest XID error since this agent started; 0 before any.",
        value=lambda reading: reading.xid,
        most=COUNT_MOST,
        under_mig=UnderMig.OWN,
        attributes=xid_attributes,
    ),
    *(
        DcgmFamily(
            field=field,
            name=f"DCGM_FI_DEV_{name}",
            kind=MetricType.COUNTER,
            help=f"Time for which {words}.",
            value=of_part(lambda sample: sample.held_down, read, NANOSECOND),
            most=TOTAL_MOST,
            group=ReadingGroup.HELD_DOWN,
        )
        for field, name, words, read in _HELD_DOWN
    ),
    *(
        _ecc(
            field=field,
            name=f"DCGM_FI_DEV_ECC_{name}_TOTAL",
            help=f"Memory errors that ECC {words}.",
            value=of_part(lambda sample: sample.ecc_errors, read),
        )
        for field, name, words, read in _ECC_TOTALS
    ),
    *(
        _ecc(
            field=field,
            name=f"DCGM_FI_DEV_ECC_{counter}_{location}",
            help=f"Errors in {place} that ECC {words}.",
            value=_memory_errors((error_type, counter_type, number)),
            group=ReadingGroup.ECC_BY_LOCATION,
            gpus="with ECC on, where they count it",
        )
        for location, number, fields, place in _LOCATIONS
        for field, (counter, error_type, counter_type, words) in zip(fields, _COUNTERS, strict=True)
    ),
    _retired(
        field=390,
        name="DCGM_FI_DEV_RETIRED_SBE",
        renamed="DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL",
        help="Memory pages taken out of service after many corrected errors.",
        value=of_part(lambda sample: sample.retired_pages, lambda pages: pages.corrected),
    ),
    _retired(
        field=391,
        name="DCGM_FI_DEV_RETIRED_DBE",
        renamed="DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL",
        help="Memory pages taken out of service after an error that could not be corrected.",
        value=of_part(lambda sample: sample.retired_pages, lambda pages: pages.uncorrected),
    ),
    _retired(
        field=392,
        name="DCGM_FI_DEV_RETIRED_PENDING",
        renamed="DCGM_FI_DEV_PAGE_RETIRED_PENDING",
        kind=MetricType.GAUGE,
        help="1 where memory pages wait for a restart to be taken out of service, else 0.",
        value=of_part(lambda sample: sample.retired_pages, lambda pages: pages.pending),
    ),
    _rows(
        field=393,
        name="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        renamed="DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        kind=MetricType.COUNTER,
        help="Memory rows replaced after uncorrectable errors.",
        value=of_part(lambda sample: sample.remapped_rows, lambda rows: rows.uncorrectable),
    ),
    _rows(
        field=394,
        name="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        renamed="DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        kind=MetricType.COUNTER,
        help="Memory rows replaced after correctable errors.",
        value=of_part(lambda sample: sample.remapped_rows, lambda rows: rows.correctable),
    ),
    _rows(
        field=395,
        name="DCGM_FI_DEV_ROW_REMAP_FAILURE",
        renamed="DCGM_FI_DEV_ROW_REMAP_FAILED",
        help="1 where a memory row could not be replaced, else 0.",
        value=of_part(lambda sample: sample.remapped_rows, lambda rows: rows.failed),
    ),
    _rows(
        field=396,
        name="DCGM_FI_DEV_ROW_REMAP_PENDING",
        help="1 where a memory row is replaced with the next reset, else 0.",
        value=of_part(lambda sample: sample.remapped_rows, lambda rows: rows.pending),
    ),
)

COUNTED: tuple[Counted, ...] = (
    Counted(
        field=9001,
        name="DCGM_EXP_XID_ERRORS_COUNT",
        help="XID errors within the window, by code.",
        event=Event.XID,
        under_mig=UnderMig.OWN,
    ),
    Counted(
        field=9002,
        name="DCGM_EXP_CLOCK_EVENTS_COUNT",
        help="Samples within the window in which clocks were held down, by reason.",
        event=Event.CLOCK_EVENT,
        group=ReadingGroup.CLOCK_EVENTS,
    ),
    Counted(
        field=9005,
        name="DCGM_EXP_CLOCK_EVENTS_TOTAL",
        help="Times that clocks began to be held down since this agent started, by reason.",
        kind=MetricType.COUNTER,
        event=Event.CLOCK_EVENT,
        span=Span.TOTAL,
        group=ReadingGroup.CLOCK_EVENTS,
    ),
    Counted(
        field=9006,
        name="DCGM_EXP_XID_ERRORS_TOTAL",
        help="XID errors since this agent started, by code.",
        kind=MetricType.COUNTER,
        event=Event.XID,
        span=Span.TOTAL,
        under_mig=UnderMig.OWN,
    ),
)
