# SPDX-License-Identifier: Apache-2.0
"""GPUs and GPU instances that have series: dcgm-exporter's ``--devices``. Pure.

Source of the grammar: dcgm-exporter 4.6.0-4.8.3, ``pkg/cmd/app.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from base.text.number_ranges import number_ranges
from discovery.model import GpuSnapshot, NvidiaFacts, Reason, nvidia_gpus

INSTANCES_PER_GPU = 8
"""DCGM numbers the instances of GPU 0 from 0 to 7, those of GPU 1 from 8, and so on."""

MOST_IDS = 1024
"""No node has more; a range is not spelt out beyond."""


class Level(StrEnum):
    """Entities of a GPU that have series."""

    FLEXIBLE = "f"  # its instances where it has some, else the GPU
    GPUS = "g"
    INSTANCES = "i"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSelection:
    """Devices that ``--devices`` selects on one level: GPUs, or GPU instances."""

    level: Level = Level.FLEXIBLE
    ids: frozenset[int] | None = None
    """GPU indices, or DCGM's numbers of instances; None: all."""

    def __str__(self) -> str:
        ids = number_ranges(sorted(self.ids or ()))
        return f"{self.level}:{ids}" if ids else str(self.level)

    def instances(self, gpu: GpuSnapshot) -> Iterator[int | None]:
        """Parts of this GPU that have series: ids of GPU instances, None for the GPU itself."""
        present = instances_of(gpu)
        if self.level is Level.GPUS or (self.level is Level.FLEXIBLE and not present):
            if self.ids is None or gpu.index in self.ids:
                yield None
            return
        for place, instance in enumerate(present):
            if self.ids is None or _dcgm_id(gpu, place) in self.ids:
                yield instance

    def available(self, gpus: Iterable[GpuSnapshot]) -> frozenset[int]:
        """Ids on this level that the NVIDIA GPUs among these can have, selected or not.

        GPU instances have the ids of any MIG layout: it may change while the agent runs.
        """
        most_by_index = {
            gpu.index: _most_instances(gpu, nvidia)
            for gpu, nvidia in nvidia_gpus(gpus)
            if gpu.index is not None
        }
        if self.level is Level.GPUS:
            return frozenset(most_by_index)
        return frozenset(
            index * INSTANCES_PER_GPU + place
            for index, most in most_by_index.items()
            for place in range(most)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Devices that ``--devices`` selects: on one level, or on GPUs and then on instances."""

    choices: tuple[LevelSelection, ...] = (LevelSelection(),)

    def __str__(self) -> str:
        """Text that :func:`parse_selection` reads."""
        return "+".join(map(str, self.choices))

    def instances(self, gpu: GpuSnapshot) -> Iterator[int | None]:
        """Parts of this GPU that have series, by each level in turn."""
        for choice in self.choices:
            yield from choice.instances(gpu)


FLEXIBLE = Selection()


def instances_of(gpu: GpuSnapshot) -> Sequence[int]:
    """Ids of the GPU's instances, in the order of their first MIG devices."""
    return list(dict.fromkeys(device.gpu_instance_id for device in gpu.mig_devices))


def _most_instances(gpu: GpuSnapshot, nvidia: NvidiaFacts) -> int:
    """How many GPU instances this GPU can have; with MIG off, as many as DCGM numbers.

    nvmlDeviceGetMaxMigDeviceCount gives 0 then.
    """
    gap = gpu.gap("mig")
    if gap is not None and gap.reason is Reason.UNSUPPORTED:
        return 0
    return nvidia.max_mig_devices or INSTANCES_PER_GPU


def parse_selection(text: str) -> Selection:
    """Parse a selection: ``f``, ``g`` or ``i``, the latter two perhaps with ``:0,2-4``.

    ``g+i`` asks for both, each with ids or without. Raises ValueError that names what is wrong
    and what is right.
    """
    choices = [_choice(part) for part in text.split("+")]
    levels = [choice.level for choice in choices]
    if len(levels) > 1 and Level.FLEXIBLE in levels:
        raise ValueError("f stands alone: write g+i for GPUs and GPU instances")
    if len(levels) > len(set(levels)):
        twice = max(levels, key=levels.count)
        raise ValueError(f"{twice} stands there twice: write all ids behind one, as in g:0,2-4")
    return Selection(choices=tuple(sorted(choices, key=lambda choice: choice.level)))


def _choice(text: str) -> LevelSelection:
    letter, colon, ids = text.strip().partition(":")
    if letter not in set(Level):
        raise ValueError(f"{letter!r} selects no devices: write f, g, i, g+i, or g:0,2-4")
    level = Level(letter)
    if not colon:
        return LevelSelection(level=level)
    if level is Level.FLEXIBLE:
        raise ValueError("f stands alone: write g:0,2-4 for GPUs or i:0,2-4 for GPU instances")
    return LevelSelection(
        level=level, ids=frozenset(id_ for part in ids.split(",") for id_ in _ids(part))
    )


def _ids(part: str) -> range:
    first, dash, last = part.strip().partition("-")
    if not (_is_number(first) and (_is_number(last) or not dash)):
        raise ValueError(f"{part!r} is neither a number nor a range such as 2-4")
    low, high = int(first), int(last or first)
    if high < low:
        raise ValueError(f"the range {part.strip()} ends before it begins: write {high}-{low}")
    if high >= MOST_IDS:
        raise ValueError(f"{high} is too high: devices are numbered from 0 to {MOST_IDS - 1}")
    return range(low, high + 1)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MOST_IDS))


def _dcgm_id(gpu: GpuSnapshot, place: int) -> int | None:
    return None if gpu.index is None else gpu.index * INSTANCES_PER_GPU + place
