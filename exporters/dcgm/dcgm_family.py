# SPDX-License-Identifier: Apache-2.0
"""What a metric family is: how it is announced, and how its values come from a reading. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from discovery.model import Driver, GpuSnapshot, NvidiaFacts
from discovery.sample import GpuSample, LinkCounters, MemoryUse, ReadingGroup
from exporters.dcgm.windows import Event, Span
from exporters.device_user_names import PodUse
from exporters.prometheus_text import MetricType

# Ceilings. NVML says "unknown" with all bits set, DCGM with numbers from 2^63 - 16 up; both lie
# above these, and no device is near them.
MEGAHERTZ_MOST = 100_000
CELSIUS_MOST = 200  # DCGM's own limit
WATTS_MOST = 100_000
PERCENT_MOST = 100
RATIO_MOST = 1.1  # two samples that are not quite as far apart as the counters' times
COUNT_MOST = 2**32 - 2
MIB_MOST = 2**32
TOTAL_MOST = 2**63 - 17
BYTES_PER_SECOND_MOST = 10**14
MASK_MOST = 2**53


NO_DRIVER = Driver()


class UnderMig(Enum):
    """How a family appears on a GPU that is split into GPU instances."""

    REPEATED = "repeated"  # the GPU's value on each of its instances
    OWN = "own"  # a value for each instance
    ABSENT = "absent"  # none while MIG is on, or none for an instance


class DcgmReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the values of one GPU, or of one of its GPU instances, are computed from."""

    driver: Driver = NO_DRIVER
    gpu_count: int | None = None
    """GPUs of the node, as NVML counts them."""
    sample: GpuSample
    """The GPU's; for an instance, that of the GPU it is part of."""
    gpu: GpuSnapshot
    nvidia: NvidiaFacts
    instance: int | None = None
    """Id of the GPU instance that it is about; None: the whole GPU."""
    before: GpuSample | None = None
    """The GPU's sample one interval earlier, for rates."""
    memory: MemoryUse | None = None
    """The frame buffer of the GPU or of the instance itself."""
    pod: PodUse | None = None
    """What the pod has that a series names, for the families with ``of_pod``."""
    xid: int = 0
    """Code of the newest XID error, 0 before any."""
    profiling: Mapping[int, float] = {}
    """GPM metric id to value, of the GPU or of the instance itself."""
    links: Mapping[int, LinkCounters] = {}
    """The GPU's NVLinks by number."""
    links_before: Mapping[int, LinkCounters] = {}
    numbers: Mapping[int, int] = {}
    """Fields of NVML that are served as they are, to their numbers."""
    memory_errors: Mapping[tuple[int, int, int], int] = {}
    """ECC errors by NVML's type, counter and location."""
    link_errors: Mapping[tuple[int, int], int] = {}
    """Errors by NVLink and NVML's kind."""
    nvlink_p2p: Mapping[int, int] = {}
    """Index of each other GPU that is shown, to NVML's status of the pair."""


Value = Callable[[DcgmReading], float | None]
Attributes = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmFamily:
    """Metric family: how it is announced and how its values come from a reading."""

    field: int
    """DCGM's field id: families appear in its order."""
    name: str
    renamed: str | None = None
    """What DCGM calls it since 4.6."""
    kind: MetricType = MetricType.GAUGE
    help: str
    value: Value
    """In the family's unit; None: no series."""
    least: float = 0
    most: float
    """No device goes above: NVML's and DCGM's "no value" numbers and other garbage do."""
    under_mig: UnderMig = UnderMig.REPEATED
    decimals: bool = False
    """Written with six decimals, as DCGM writes what it holds as double; else a whole number."""
    exact: bool = False
    """Written digit by digit, also where a double does not hold the number: a mask of 64 bits."""
    group: ReadingGroup | None = None
    """The readings it needs; None: those that are always made."""
    gpus: str = "all"
    """GPUs that have it, in words for people."""
    attributes: Attributes | None = None
    """Further labels that follow from the written value."""
    of_pod: Value | None = None
    """A pod's part of a device that pods may share, by its processes; None: there is no such value.

    The family then has a series of the device itself too, which names no pod.
    """

    def texts(self, readings: Iterable[DcgmReading]) -> list[bytes | None]:
        """Each reading's value as it is written; None where there is none or it is impossible.

        NaN and infinities are impossible too, and most negative numbers: NVML knows no
        temperature below zero. One call for all readings, and bytes at once, since this is
        where rendering spends its time.
        """
        form = b"%d" if self.exact else b"%.6f" if self.decimals else b"%.0f"
        least, greatest = self.least, self.most
        return [
            form % value if value is not None and least <= value <= greatest else None
            for value in map(self.value if self.of_pod is None else self._shared, readings)
        ]

    def as_label(self) -> LabelRow:
        """The family's value as a label of all series, as it is written."""

        def text(reading: DcgmReading) -> str | None:
            (written,) = self.texts((reading,))
            return None if written is None else written.decode()

        return LabelRow(
            field=self.field,
            name=self.name,
            help=self.help,
            value=text,
            group=self.group,
            of_instances=self.under_mig is not UnderMig.ABSENT,
        )

    def _shared(self, reading: DcgmReading) -> float | None:
        read = self.value if reading.pod is None or self.of_pod is None else self.of_pod
        return read(reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A family that counts events, with a series for each kind of them."""

    field: int
    name: str
    help: str
    event: Event
    span: Span = Span.WINDOW
    # falls when events leave the window, so by nature a gauge; upstream calls it counter
    kind: MetricType = MetricType.GAUGE
    group: ReadingGroup | None = None
    renamed: None = None
    under_mig: UnderMig = UnderMig.REPEATED
    gpus: str = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """A family about pairs of GPUs, with a series for each pair."""

    field: int
    name: str
    help: str
    value: Callable[[DcgmReading], Mapping[int, int]]
    """Index of the other GPU to a number."""
    word: Callable[[int], str]
    """What a number means."""
    group: ReadingGroup
    gpus: str
    kind: MetricType = MetricType.GAUGE
    renamed: None = None
    # no instance reaches another GPU's memory
    under_mig: UnderMig = UnderMig.ABSENT


AnyFamily = DcgmFamily | Counted | Paired


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRow:
    """A fact that stands as label on every series of a device."""

    field: int
    name: str
    """The label's own name too."""
    renamed: str | None = None
    help: str
    value: Callable[[DcgmReading], str | None]
    """What the label says of a series' device; None: the label is left out."""
    group: ReadingGroup | None = None
    """The readings it needs; None: those that are always made."""
    of_instances: bool = True
    """Series of GPU instances have it too."""
