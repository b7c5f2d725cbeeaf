# SPDX-License-Identifier: Apache-2.0
"""Metric families of our own, each declared once for the exposition, the docs and the tests.

Names and labels follow Prometheus' conventions: base units, ``_total`` on counters and only on
them, snake case. A value of a GPU has one series, however many GPU instances it has, and
values of GPU instances have families of their own, so that sums are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from discovery.model import NvidiaFacts
from discovery.sample import GpuSample, ReadingGroup
from exporters.gpuscape.node_view import GpuView, InstanceView, NodeView
from exporters.prometheus_text import MetricType, labels_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Part = TypeVar("_Part")

GPU = ("uuid", "pci_bus_id")
INSTANCE = (*GPU, "gpu_instance_id")

MOST = 2.0**60
"""Largest number that is served: NVML's numbers for "no value" are above, all counters below."""

Series = Iterable[tuple[tuple[str, ...], float | None]]
"""Values of the family's labels, and the number; None: no series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuscapeFamily:
    """A metric family: its announcement, and the function from a node to its series."""

    name: str
    help: str
    labels: tuple[str, ...]
    series: Callable[[NodeView], Series]
    source: str
    """Source of the numbers, for the docs."""
    groups: tuple[ReadingGroup, ...] = ()
    """Readings that the family needs in addition to those that are always made."""
    least: float = 0.0
    """Smallest possible number: a smaller one is not served."""
    of_discovery: bool = False
    """The family depends on snapshot and verdicts alone, not on samples or device users."""

    @property
    def kind(self) -> MetricType:
        """Counters, and only they, have a name that ends with ``_total``."""
        return MetricType.COUNTER if self.name.endswith("_total") else MetricType.GAUGE

    def announcement(self) -> str:
        """HELP and TYPE, the lines before the series of a family."""
        text = self.help.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {self.kind}"


class GpuscapeText:
    """The text of one family, render after render; keeps what stands before the numbers.

    A family of discoveries is rendered once for each snapshot.
    """

    def __init__(self, family: GpuscapeFamily) -> None:
        self._family = family
        self._announcement = family.announcement()
        self._heads: dict[tuple[str, ...], str] = {}
        self._rendered: tuple[NodeView, list[str]] | None = None

    def lines(self, node: NodeView) -> list[str]:
        """The announcement and a line for each series; nothing without series.

        Of two series with the same labels the first is written: scrapers refuse both.
        """
        if not self._family.of_discovery:
            return self._lines(node)
        if self._rendered is None or not _same_discovery(self._rendered[0], node):
            self._rendered = node, self._lines(node)
        return self._rendered[1]

    def _lines(self, node: NodeView) -> list[str]:
        family, heads = self._family, self._heads
        numbers: dict[str, str] = {}
        for values, number in family.series(node):
            # the plus makes a number of True
            if number is not None and family.least <= number <= MOST:
                numbers.setdefault(heads.get(values) or self._head(values), repr(+number))
        if len(heads) > 2 * len(numbers) + 64:  # what is gone for good
            heads.clear()
        series = [head + text for head, text in numbers.items()]
        return [self._announcement, *series] if series else []

    def _head(self, values: tuple[str, ...]) -> str:
        family = self._family
        named = zip(family.labels, values, strict=True)
        labels = labels_text({name: value or None for name, value in named})
        head = f"{family.name}{{{labels}}} " if labels else f"{family.name} "
        # Text from a driver or a process may hold what UTF-8 cannot say.
        self._heads[values] = head.encode("utf-8", "replace").decode("utf-8")
        return self._heads[values]


def _same_discovery(before: NodeView, now: NodeView) -> bool:
    return before.snapshot is now.snapshot and before.health == now.health


# Families by what they are about


def of_gpus(
    name: str,
    help: str,  # noqa: A002  # what it is called in the exposition
    read: Callable[[GpuView], float | None],
    *,
    source: str,
    groups: tuple[ReadingGroup, ...] = (),
    least: float = 0.0,
) -> GpuscapeFamily:
    """A series function with a number for each GPU that answers."""

    def series(node: NodeView) -> Series:
        for gpu in node.gpus:
            yield gpu.labels, read(gpu)

    return GpuscapeFamily(
        name=name,
        help=help,
        labels=GPU,
        series=series,
        source=source,
        groups=groups,
        least=least,
    )


def of_nvidia_gpus(
    name: str,
    help: str,  # noqa: A002
    read: Callable[[NvidiaFacts], float | None],
    *,
    source: str,
) -> GpuscapeFamily:
    """A series function with a fact of each NVIDIA GPU that answers."""

    def value(gpu: GpuView) -> float | None:
        return None if gpu.gpu.nvidia is None else read(gpu.gpu.nvidia)

    return of_gpus(name, help, value, source=source)


def of_gpu_parts(
    name: str,
    help: str,  # noqa: A002
    label: str,
    read: Callable[[GpuView], Mapping[str, float | None]],
    *,
    source: str,
    groups: tuple[ReadingGroup, ...] = (),
) -> GpuscapeFamily:
    """Numbers for the parts of each GPU that answers, with one more label for the part."""

    def series(node: NodeView) -> Series:
        for gpu in node.gpus:
            for word, number in read(gpu).items():
                yield (*gpu.labels, word), number

    return GpuscapeFamily(
        name=name,
        help=help,
        labels=(*GPU, label),
        series=series,
        source=source,
        groups=groups,
    )


def of_instances(
    name: str,
    help: str,  # noqa: A002
    read: Callable[[InstanceView], float | None],
    *,
    source: str,
    groups: tuple[ReadingGroup, ...] = (),
) -> GpuscapeFamily:
    """A series function with a number for each GPU instance."""

    def series(node: NodeView) -> Series:
        for gpu in node.gpus:
            for instance in gpu.instances:
                yield instance.labels, read(instance)

    return GpuscapeFamily(
        name=name,
        help=help,
        labels=INSTANCE,
        series=series,
        source=source,
        groups=groups,
    )


def part_reading(
    read_part: Callable[[GpuSample], _Part | None], read: Callable[[_Part], float | None]
) -> Callable[[GpuView], float | None]:
    """A reading within a part of the sample; None where the part is missing."""

    def value(gpu: GpuView) -> float | None:
        part = read_part(gpu.sample)
        return None if part is None else read(part)

    return value


def part_readings(
    read_part: Callable[[GpuSample], DataclassInstance | None], *left_out: str
) -> Callable[[GpuView], dict[str, float | None]]:
    """All readings of a part of the sample, by their names; empty where the part is missing."""

    def values(gpu: GpuView) -> dict[str, float | None]:
        part = read_part(gpu.sample)
        if part is None:
            return {}
        names = (field.name for field in fields(part) if field.name not in left_out)
        return {name: getattr(part, name) for name in names}

    return values
