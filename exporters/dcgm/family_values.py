# SPDX-License-Identifier: Apache-2.0
"""How a family's value comes from a reading, in the family's unit. Pure.

Each function makes a :data:`exporters.dcgm.dcgm_family.Value`; what a device does not give is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from discovery.model import GpuSnapshot, NvidiaFacts
from discovery.sample import GpuSample, LinkError, MemoryUse
from exporters.dcgm.dcgm_family import DcgmReading, Value
from exporters.device_user_names import PodUse

MEGAHERTZ = 1e6
MILLIJOULE = 1e-3
NANOSECOND = 1e-9
PERCENT = 1e-2
MIB = 1 << 20

Part = TypeVar("Part")

Sides = Callable[[int | None, int | None], int | None]
"""Choice of the bytes, received and sent, that a family counts."""


def of_sample(read: Callable[[GpuSample], float | None], unit: float = 1) -> Value:
    """A reading of the sample, in ``unit`` instead of the base unit."""

    def value(reading: DcgmReading) -> float | None:
        base = read(reading.sample)
        return None if base is None else base / unit

    return value


def of_part(
    part: Callable[[GpuSample], Part | None],
    read: Callable[[Part], float | None],
    unit: float = 1,
) -> Value:
    """A reading of one part of the sample, which may be missing as a whole."""

    def value(reading: DcgmReading) -> float | None:
        source = part(reading.sample)
        base = None if source is None else read(source)
        # a mask of 64 bits is more than a quotient could hold
        return base if base is None or unit == 1 else base / unit

    return value


def of_gpu(read: Callable[[GpuSnapshot], float | None]) -> Value:
    """A fact of the snapshot, which is read less often than the samples."""
    return lambda reading: read(reading.gpu)


def of_nvidia(read: Callable[[NvidiaFacts], float | None]) -> Value:
    """A fact of the snapshot that only NVIDIA GPUs have."""
    return lambda reading: read(reading.nvidia)


def of_memory(read: Callable[[MemoryUse], int | None]) -> Value:
    """A part of the frame buffer in whole MiB, rounded down as dcgm-exporter does."""

    def value(reading: DcgmReading) -> int | None:
        size_bytes = None if reading.memory is None else read(reading.memory)
        return None if size_bytes is None else size_bytes // MIB

    return value


def of_bar1(read: Callable[[MemoryUse], int]) -> Value:
    """A part of the memory that the CPU can reach, in whole MiB."""
    return of_part(lambda sample: sample.bar1, lambda bar1: read(bar1) // MIB)


def of_pod(read: Callable[[PodUse], float | None], unit: float) -> Value:
    """What a pod's processes have, in ``unit`` instead of the base unit."""

    def value(reading: DcgmReading) -> float | None:
        base = None if reading.pod is None else read(reading.pod)
        return None if base is None else base / unit

    return value


def used_ratio(reading: DcgmReading) -> float | None:
    """Frame buffer in use of what the driver does not reserve."""
    use = reading.memory
    if use is None or use.used_bytes + use.free_bytes == 0:
        return None
    return use.used_bytes / (use.used_bytes + use.free_bytes)


def total_bytes(use: MemoryUse) -> int:
    """All of a memory; before driver 510 what is reserved is counted as used."""
    return use.free_bytes + use.used_bytes + (use.reserved_bytes or 0)


def of_number(number: int) -> Value:
    """A field of NVML as it is."""
    return lambda reading: reading.numbers.get(number)


def of_profiling(metric: int, factor: float = 1) -> Value:
    """A value of GPM by NVML's metric id, times ``factor``."""

    def value(reading: DcgmReading) -> float | None:
        measured = reading.profiling.get(metric)
        return None if measured is None else measured * factor

    return value


def pcie_rate(metric: int, read: Callable[[GpuSample], int | None]) -> Value:
    """Bytes each second by GPM, else by what was counted since the sample before.

    None with the first sample and after the driver started its counters again.
    """

    def value(reading: DcgmReading) -> float | None:
        measured = reading.profiling.get(metric)
        return _rate(reading, read) if measured is None else measured

    return value


def _rate(reading: DcgmReading, read: Callable[[GpuSample], int | None]) -> float | None:
    before = reading.before
    now, then = read(reading.sample), None if before is None else read(before)
    if before is None or now is None or then is None or now < then:
        return None
    seconds = reading.sample.at_seconds - before.at_seconds
    return (now - then) / seconds if seconds > 0 else None


def both(received: int | None, sent: int | None) -> int | None:
    """Bytes in both directions together."""
    return None if received is None or sent is None else received + sent


def received_only(received: int | None, _: int | None) -> int | None:
    """Bytes that were received."""
    return received


def sent_only(_: int | None, sent: int | None) -> int | None:
    """Bytes that were sent."""
    return sent


def nvlink_rate(sides: Sides) -> Value:
    """Data over all NVLinks, in thousands of KiB each second.

    About MB/s, though the family's name and type promise a running total: DCGM serves a
    rate. 0 with the first sample, and after the driver started its counters again.
    """

    def counted(sample: GpuSample | None) -> int | None:
        if sample is None:
            return None
        return sides(sample.nvlink_received_bytes, sample.nvlink_sent_bytes)

    return lambda reading: _dcgm_rate(reading, counted(reading.sample), counted(reading.before))


def link_rate(link: int, sides: Sides) -> Value:
    """Data over one NVLink, in thousands of KiB each second."""

    def value(reading: DcgmReading) -> int | None:
        now, then = reading.links.get(link), reading.links_before.get(link)
        if now is None:
            return None
        before = None if then is None else sides(then.received_bytes, then.sent_bytes)
        return _dcgm_rate(reading, sides(now.received_bytes, now.sent_bytes), before)

    return value


def _dcgm_rate(reading: DcgmReading, now: int | None, then: int | None) -> int | None:
    if now is None:
        return None
    if reading.before is None or then is None or now < then:
        return 0
    seconds = reading.sample.at_seconds - reading.before.at_seconds
    return math.floor((now - then) / 1024 / seconds / 1000) if seconds > 0 else 0


def link_errors(*errors: LinkError) -> Value:
    """Errors of these kinds over all links; None if one link does not count one of them."""

    def value(reading: DcgmReading) -> int | None:
        counted = [
            dict(link.errors).get(error) for link in reading.links.values() for error in errors
        ]
        known = [count for count in counted if count is not None]
        return sum(known) if known and len(known) == len(counted) else None

    return value
