# SPDX-License-Identifier: Apache-2.0
"""Differences between the desired and the current layout of GPUs, in words. Pure.

Layouts are compared by meaning: the order and the spelling of a configuration do not matter, nor
where an instance lies, unless the layout names a place. GPUs without a desired layout never differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from discovery.mig_state import CurrentInstance, MigGpu
from mig.gpu_layout import DesiredInstance, GpuLayout


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
    differing = [difference for difference in differences if difference.reasons]
    return tuple(
        sorted(
            differing,
            key=lambda difference: (
                difference.index is None,
                difference.index or 0,
                difference.uuid,
            ),
        )
    )


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
    missing, surplus = _unmatched(layout.instances, gpu.instances)
    if missing:
        yield f"missing: {_counted(map(_desired_text, missing))}"
    if surplus:
        yield f"surplus: {_counted(map(_current_text, surplus))}"
    for instance in gpu.instances:
        if not instance.compute:
            place = f"{instance.profile} at {instance.start}"
            yield f"GPU instance {instance.id} ({place}) has no compute instance"


def _unmatched(
    desired: Sequence[DesiredInstance], present: Sequence[CurrentInstance]
) -> tuple[list[DesiredInstance], list[CurrentInstance]]:
    """Missing and surplus instances after pairing equal ones; those with a place choose first."""
    surplus = [instance for instance in present if instance.compute]
    missing = []
    for instance in sorted(desired, key=lambda instance: instance.start < 0):
        match = next((candidate for candidate in surplus if _is_like(candidate, instance)), None)
        if match is None:
            missing.append(instance)
        else:
            surplus.remove(match)
    return missing, surplus


def _is_like(instance: CurrentInstance, desired: DesiredInstance) -> bool:
    return (
        instance.profile == desired.profile
        and _sizes(instance) == desired.compute
        and desired.start in (-1, instance.start)
    )


def _sizes(instance: CurrentInstance) -> tuple[int, ...]:
    return tuple(sorted((compute.slices for compute in instance.compute), reverse=True))


def _desired_text(instance: DesiredInstance) -> str:
    place = f" at {instance.start}" if instance.start >= 0 else ""
    return f"{_instance_text(instance.profile, instance.compute)}{place}"


def _current_text(instance: CurrentInstance) -> str:
    return f"{_instance_text(instance.profile, _sizes(instance))} at {instance.start}"


def _instance_text(profile: str, sizes: tuple[int, ...]) -> str:
    """The profile; with its compute instances unless a single one takes all slices."""
    if sizes == (int(profile.partition("g.")[0]),):
        return profile
    return f"{profile} in {'+'.join(f'{size}c' for size in sizes)}"


def _counted(texts: Iterable[str]) -> str:
    return ", ".join(
        text if count == 1 else f"{count}x {text}" for text, count in sorted(Counter(texts).items())
    )


def _word(mode: bool) -> str:
    return "on" if mode else "off"
