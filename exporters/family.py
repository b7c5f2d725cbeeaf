"""What a metric family is: how it is announced, and how its values come from a reading. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum

from discovery.model import RemappedRows
from discovery.sample import GpuSample, MemoryUse

MIB = 1 << 20


class Kind(StrEnum):
    """What stands behind ``# TYPE``."""

    GAUGE = "gauge"
    COUNTER = "counter"


class UnderMig(Enum):
    """How a family appears on a GPU that is split into GPU instances."""

    REPEATED = "repeated"  # the GPU's value on each of its instances
    OWN = "own"  # a value for each instance
    ABSENT = "absent"  # NVML gives none while MIG is on


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the values of one GPU, or of one of its GPU instances, are computed from."""

    sample: GpuSample
    """The GPU's; for an instance, that of the GPU it is part of."""
    before: GpuSample | None = None
    """The GPU's sample one interval earlier, for rates."""
    memory: MemoryUse | None = None
    """The frame buffer of the GPU or of the instance itself."""
    xid: int = 0
    """Code of the newest XID error, 0 before any."""


Value = Callable[[Reading], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric family: how it is announced and how its values come from a reading."""

    field: int
    """DCGM's field id: families appear in its order."""
    name: str
    kind: Kind
    help: str
    value: Value
    """In the family's unit; None: no series."""
    most: float
    """No device goes above: NVML's and DCGM's "no value" numbers and other garbage do."""
    under_mig: UnderMig = UnderMig.REPEATED
    decimals: bool = False
    """Written with six decimals, as DCGM writes what it holds as double; else a whole number."""
    attributes: Callable[[str], dict[str, str]] | None = None
    """Further labels that follow from the written value, sorted by name."""

    def texts(self, readings: Iterable[Reading]) -> list[str | None]:
        """Each reading's value as it is written; None where there is none or it is impossible.

        Negative numbers, NaN and infinities are impossible too: NVML knows no temperature
        below zero. One call for all readings, since this is where rendering spends its time.
        """
        form, most = "%.6f" if self.decimals else "%.0f", self.most
        return [
            form % value if value is not None and 0 <= value <= most else None
            for value in map(self.value, readings)
        ]


def of_sample(read: Callable[[GpuSample], float | None], unit: float = 1) -> Value:
    """A reading of the sample, in ``unit`` instead of the base unit."""

    def value(reading: Reading) -> float | None:
        base = read(reading.sample)
        return None if base is None else base / unit

    return value


def of_memory(read: Callable[[MemoryUse], int | None]) -> Value:
    """A part of the frame buffer in whole MiB, rounded down as dcgm-exporter does."""

    def value(reading: Reading) -> int | None:
        size_bytes = None if reading.memory is None else read(reading.memory)
        return None if size_bytes is None else size_bytes // MIB

    return value


def of_rows(read: Callable[[RemappedRows], int]) -> Value:
    """A count or flag of the remapped rows; Ampere and later."""

    def value(reading: Reading) -> int | None:
        rows = reading.sample.remapped_rows
        return None if rows is None else read(rows)

    return value


def nvlink_bandwidth(reading: Reading) -> int | None:
    """Data over all NVLinks in both directions, in thousands of KiB each second.

    About MB/s, though the family's name and type promise a running total: DCGM serves a
    rate. 0 with the first sample, and after the driver started its counters again.
    """
    now = _nvlink_bytes(reading.sample)
    if now is None:
        return None
    then = None if reading.before is None else _nvlink_bytes(reading.before)
    if reading.before is None or then is None or now < then:
        return 0
    seconds = reading.sample.at_seconds - reading.before.at_seconds
    return math.floor((now - then) / 1024 / seconds / 1000) if seconds > 0 else 0


def _nvlink_bytes(sample: GpuSample) -> int | None:
    received, sent = sample.nvlink_received_bytes, sample.nvlink_sent_bytes
    return None if received is None or sent is None else received + sent


def xid_attributes(code: str) -> dict[str, str]:
    """The code once more as label, since alerts on dcgm-exporter's series match on it."""
    return {"err_code": code}
