# SPDX-License-Identifier: Apache-2.0
"""Whether GPUs are as they should be, and what differs, in words. Pure.

Layouts are compared by meaning: the order and the spelling of a configuration do not matter, nor
where an instance lies unless a place was asked for. GPUs for which nothing is wanted never differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from discovery.mig_state import FoundInstance, MigGpu
from mig.gpu_layout import GpuLayout, WantedInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutDifference:
    """One GPU that is not as it should be."""

    uuid: str
    index: int | None
    """For people; None where there is no such GPU."""
    reasons: tuple[str, ...]
    """At least one, each a clause without a full stop."""

    def __str__(self) -> str:
        """One line."""
        title = self.uuid if self.index is None else f"GPU {self.index} ({self.uuid})"
        return f"{title}: {'; '.join(self.reasons)}"


def layout_differences(
    wanted: Mapping[str, GpuLayout], gpus: Iterable[MigGpu], *, modes_only: bool = False
) -> tuple[LayoutDifference, ...]:
    """The GPUs that differ from what is wanted, by index; empty where all are as wanted.

    ``wanted``: UUID to layout. A GPU instance without compute instances is like no wanted one, and
    a mode that waits for a reset is not the wanted one. ``modes_only``: instances do not count.
    """
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    found = [
        _difference(uuid, layout, by_uuid.get(uuid), modes_only=modes_only)
        for uuid, layout in wanted.items()
    ]
    differing = [one for one in found if one.reasons]
    return tuple(sorted(differing, key=lambda one: (one.index is None, one.index or 0, one.uuid)))


def _difference(
    uuid: str, layout: GpuLayout, gpu: MigGpu | None, *, modes_only: bool
) -> LayoutDifference:
    if gpu is None:
        return LayoutDifference(uuid=uuid, index=None, reasons=("there is no such GPU",))
    instances = () if modes_only else _instance_reasons(layout, gpu)
    reasons = (*_mode_reasons(layout, gpu), *instances)
    return LayoutDifference(uuid=uuid, index=gpu.index, reasons=reasons)


def _mode_reasons(layout: GpuLayout, gpu: MigGpu) -> Iterable[str]:
    if gpu.mode is None:
        yield "it has no MIG"
    elif gpu.mode.current != layout.mig:
        waits = ", waiting for a reset" if gpu.mode.pending == layout.mig else ""
        yield f"MIG is {_word(gpu.mode.current)}, wanted {_word(layout.mig)}{waits}"
    elif gpu.mode.pending != layout.mig:
        yield f"MIG will be {_word(gpu.mode.pending)} after a reset, wanted {_word(layout.mig)}"


def _instance_reasons(layout: GpuLayout, gpu: MigGpu) -> Iterable[str]:
    """Nothing is wanted without MIG, so all instances that are there then are too many."""
    missing, surplus = _unmatched(layout.instances, gpu.instances)
    if missing:
        yield f"missing: {_counted(map(_wanted_text, missing))}"
    if surplus:
        yield f"not wanted: {_counted(map(_found_text, surplus))}"
    for one in gpu.instances:
        if not one.compute:
            yield f"GPU instance {one.id} ({one.profile} at {one.start}) has no compute instance"


def _unmatched(
    wanted: Sequence[WantedInstance], found: Sequence[FoundInstance]
) -> tuple[list[WantedInstance], list[FoundInstance]]:
    """What is left of both when equals are paired; those with a place choose first."""
    left = [one for one in found if one.compute]
    missing = []
    for one in sorted(wanted, key=lambda each: each.start < 0):
        match = next((each for each in left if _is_like(each, one)), None)
        if match is None:
            missing.append(one)
        else:
            left.remove(match)
    return missing, left


def _is_like(found: FoundInstance, wanted: WantedInstance) -> bool:
    return (
        found.profile == wanted.profile
        and _sizes(found) == wanted.compute
        and wanted.start in (-1, found.start)
    )


def _sizes(instance: FoundInstance) -> tuple[int, ...]:
    return tuple(sorted((one.slices for one in instance.compute), reverse=True))


def _wanted_text(one: WantedInstance) -> str:
    place = f" at {one.start}" if one.start >= 0 else ""
    return f"{_instance_text(one.profile, one.compute)}{place}"


def _found_text(one: FoundInstance) -> str:
    return f"{_instance_text(one.profile, _sizes(one))} at {one.start}"


def _instance_text(profile: str, sizes: tuple[int, ...]) -> str:
    """The profile, and its compute instances where it is not one that takes all of it."""
    if sizes == (int(profile.partition("g.")[0]),):
        return profile
    return f"{profile} in {'+'.join(f'{size}c' for size in sizes)}"


def _counted(texts: Iterable[str]) -> str:
    return ", ".join(
        text if count == 1 else f"{count}x {text}" for text, count in sorted(Counter(texts).items())
    )


def _word(mode: bool) -> str:
    return "on" if mode else "off"
