# SPDX-License-Identifier: Apache-2.0
"""Families of clocks: in MHz, and since DCGM 4.6.1 in hertz too."""

from __future__ import annotations

from collections.abc import Callable

from discovery.sample import Clocks, GpuSample, ReadingGroup
from exporters.dcgm.dcgm_family import MEGAHERTZ_MOST, DcgmFamily
from exporters.dcgm.family_values import MEGAHERTZ, of_sample

_Hertz = Callable[[GpuSample], int | None]


def _of(read: Callable[[Clocks], int | None]) -> _Hertz:
    return lambda sample: None if sample.clocks is None else read(sample.clocks)


_ALWAYS: tuple[tuple[int, str, int, str, str, _Hertz], ...] = (
    (100, "SM_CLOCK", 1603, "SM_CLOCK", "Clock of the streaming multiprocessors",
     lambda sample: sample.sm_clock_hertz),
    (101, "MEM_CLOCK", 1604, "MEMORY_CLOCK", "Clock of the memory",
     lambda sample: sample.memory_clock_hertz),
)  # fmt: skip
"""DCGM's field and name in MHz, those in hertz, in words, where it is read."""

_SELECTED: tuple[tuple[int, str, int, str, str, _Hertz], ...] = (
    (102, "VIDEO_CLOCK", 1605, "VIDEO_CLOCK", "Clock of the video encoders and decoders",
     _of(lambda clocks: clocks.video)),
    (110, "APP_SM_CLOCK", 1606, "SM_APP_CLOCK",
     "Clock of the streaming multiprocessors that applications are to run at",
     _of(lambda clocks: clocks.application_sm)),
    (111, "APP_MEM_CLOCK", 1607, "MEMORY_APP_CLOCK",
     "Clock of the memory that applications are to run at",
     _of(lambda clocks: clocks.application_memory)),
    (113, "MAX_SM_CLOCK", 1608, "SM_MAX_CLOCK", "Highest clock of the streaming multiprocessors",
     _of(lambda clocks: clocks.highest_sm)),
    (114, "MAX_MEM_CLOCK", 1609, "MEMORY_MAX_CLOCK", "Highest clock of the memory",
     _of(lambda clocks: clocks.highest_memory)),
    (115, "MAX_VIDEO_CLOCK", 1610, "VIDEO_MAX_CLOCK",
     "Highest clock of the video encoders and decoders",
     _of(lambda clocks: clocks.highest_video)),
)  # fmt: skip
"""Clocks that only a counters file selects, in the same form."""

FAMILIES: tuple[DcgmFamily, ...] = tuple(
    family
    for clocks, group in ((_ALWAYS, None), (_SELECTED, ReadingGroup.CLOCKS))
    for field, name, base_field, base_name, words, read in clocks
    for family in (
        DcgmFamily(
            field=field,
            name=f"DCGM_FI_DEV_{name}",
            help=f"{words} in MHz.",
            value=of_sample(read, MEGAHERTZ),
            most=MEGAHERTZ_MOST,
            group=group,
        ),
        DcgmFamily(
            field=base_field,
            name=f"DCGM_FI_DEV_{base_name}_HERTZ",
            help=f"{words} in hertz.",
            value=of_sample(read),
            most=MEGAHERTZ_MOST * MEGAHERTZ,
            group=group,
        ),
    )
)
