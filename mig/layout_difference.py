# SPDX-License-Identifier: Apache-2.0
"""Differences between the desired and the current layout of GPUs, in words. Pure.

Layouts are compared by meaning: the order and the spelling of a configuration do not matter, nor
where an instance lies, unless the layout names a place. GPUs without a desired layout never differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from discovery.mig_state import MigGpu
from mig.gpu_layout import DesiredInstance, GpuLayout, placed_instance


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutDifference:
    """A GPU whose current layout is not the desired one, with the reasons."""

    uuid: str
    index: int | None
    """Index for people; None if the node has no such GPU."""
    reasons: tuple[str, ...]
    """Reasons, each a clause without a full stop; at least one."""

    def __str__(self) -> str:
        """GPU and reasons in one line."""
        title = self.uuid if self.index is None else f"GPU {self.index} ({self.uuid})"
        return f"{title}: {'; '.join(self.reasons)}"


def layout_differences(
    desired: Mapping[str, GpuLayout], gpus: Iterable[MigGpu], *, modes_only: bool = False
) -> tuple[LayoutDifference, ...]:
    """The GPUs that differ from their desired layout, by index; empty if none does.

    ``desired``: UUID to layout. A GPU instance without compute instances matches no desired one,
    and a mode that waits for a reset differs. ``modes_only``: instances are not compared.
    """
    gpus_by_uuid = {gpu.uuid: gpu for gpu in gpus}
    differences = [
        _difference(uuid, layout, gpus_by_uuid.get(uuid), modes_only=modes_only)
        for uuid, layout in desired.items()
    ]
    differing = (difference for difference in differences if difference.reasons)
    return tuple(sorted(differing, key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.uuid)))


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
        yield f"MIG is {_word(gpu.mode.current)}, desired {_word(layout.mig)}{waits}"
    elif gpu.mode.pending != layout.mig:
        yield f"MIG will be {_word(gpu.mode.pending)} after a reset, desired {_word(layout.mig)}"


def _instance_reasons(layout: GpuLayout, gpu: MigGpu) -> Iterable[str]:
    """Missing and surplus instances. A layout without MIG has none, so all are surplus then."""
    missing: list[DesiredInstance] = []
    surplus = [placed_instance(instance) for instance in gpu.instances if instance.compute]
    for desired in sorted(layout.instances, key=lambda instance: instance.start < 0):
        # those with a place choose first
        match = next(
            (current for current in surplus if desired in (current, replace(current, start=-1))),
            None,
        )
        if match is None:
            missing.append(desired)
        else:
            surplus.remove(match)
    if missing:
        yield f"missing: {_counted(missing)}"
    if surplus:
        yield f"surplus: {_counted(surplus)}"
    for instance in gpu.instances:
        if not instance.compute:
            place = f"{instance.profile} at {instance.start}"
            yield f"GPU instance {instance.id} ({place}) has no compute instance"


def _counted(instances: Iterable[DesiredInstance]) -> str:
    counts = sorted(Counter(map(str, instances)).items())
    return ", ".join(text if count == 1 else f"{count}x {text}" for text, count in counts)


def _word(mode: bool) -> str:
    return "on" if mode else "off"
