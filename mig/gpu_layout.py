# SPDX-License-Identifier: Apache-2.0
"""The layout of one GPU: MIG on or off, and its instances. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from base.errors import BadInput
from discovery.mig_state import CurrentInstance, MigGpu
from discovery.model import Mode
from mig.profile_names import DeviceName, device_name


@dataclass(frozen=True, slots=True, order=True)
class DesiredInstance:
    """A GPU instance of a desired layout. Equal instances are interchangeable."""

    profile: str
    """``3g.20gb``, ``1g.5gb+me``: without compute slices in front."""
    compute: tuple[int, ...]
    """Slices of each compute instance, the largest first; the whole instance is ``(slices,)``."""
    start: int = -1
    """First memory unit, if the layout asks for a certain one; -1 for any."""

    def __str__(self) -> str:
        """The instance in words, with its compute instances unless a single one takes all of it."""
        text = self.profile
        if not self.compute:
            text += ": no compute instance"
        elif self.compute != (int(self.profile.partition("g.")[0]),):
            text += f" in {'+'.join(f'{slices}c' for slices in self.compute)}"
        return f"{text} at {self.start}" if self.start >= 0 else text


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLayout:
    """A GPU's layout in canonical form: layouts that mean the same are equal."""

    mig: bool
    instances: tuple[DesiredInstance, ...] = ()
    """Sorted; empty with MIG off."""

    def __post_init__(self) -> None:
        """Sorts the instances. Raises ValueError for instances with MIG off."""
        if self.instances and not self.mig:
            raise ValueError("instances with MIG off")
        object.__setattr__(self, "instances", tuple(sorted(self.instances)))

    def __str__(self) -> str:
        """The layout in one line: ``2 x 1g.5gb, 1 x 3g.20gb at 4``."""
        if not self.mig:
            return "MIG off"
        counts = Counter(map(str, self.instances))
        return ", ".join(f"{count} x {text}" for text, count in counts.items()) or "MIG on, empty"

    @property
    def anywhere(self) -> GpuLayout:
        """The layout without the places of its instances."""
        instances = tuple(replace(instance, start=-1) for instance in self.instances)
        return replace(self, instances=instances)

    def devices(self) -> Counter[str]:
        """MIG devices by canonical name, as a configuration file counts them."""
        counts: Counter[str] = Counter()
        for instance in self.instances:
            slices = int(instance.profile.split("g.", 1)[0])
            counts.update(
                instance.profile if part == slices else f"{part}c.{instance.profile}"
                for part in instance.compute
            )
        return counts


MOST_DEVICES: Final = 64
"""MIG devices that a layout may have at most: a bound on work, far above what GPUs have."""

MIG_OFF = GpuLayout(mig=False)


def current_layout(gpu: MigGpu, *, exact: bool = False) -> GpuLayout:
    """A GPU's current layout; with ``exact`` each instance at its place, as a rollback needs it.

    A GPU instance without compute instances is part of it, and makes it unequal to any layout that
    a configuration asks for.
    """
    if gpu.mode is None or not gpu.mode.current:
        return MIG_OFF
    layout = GpuLayout(mig=True, instances=tuple(map(placed_instance, gpu.instances)))
    return layout if exact else layout.anywhere


def placed_instance(instance: CurrentInstance) -> DesiredInstance:
    """A current instance as part of a layout, at its place."""
    slices = sorted((compute.slices for compute in instance.compute), reverse=True)
    return DesiredInstance(instance.profile, tuple(slices), instance.start)


def has_layout(gpu: MigGpu, layout: GpuLayout) -> bool:
    """Whether a GPU has a layout: no other instances, and no change of mode pending."""
    if gpu.mode is None:
        return not layout.mig
    if gpu.mode != Mode(current=layout.mig, pending=layout.mig):
        return False
    current = current_layout(gpu, exact=True)
    return current.anywhere == layout.anywhere and all(
        instance in current.instances for instance in layout.instances if instance.start >= 0
    )


def layout_from_counts(devices: Mapping[str, int]) -> GpuLayout:
    """The layout of MIG devices by name and count, as a configuration file has them.

    Zeros are dropped and names brought to canonical form. Parts of GPU instances share as few
    instances as they fit into: the largest first, each into the first instance with room. Raises
    BadInput for a name that is no MIG profile, and for more devices than any GPU has.
    """
    if sum(devices.values()) > MOST_DEVICES:
        raise BadInput(f"{sum(devices.values())} MIG devices; no GPU has more than {MOST_DEVICES}")
    instances: list[DesiredInstance] = []
    parts: dict[str, list[DeviceName]] = {}
    for text, count in devices.items():
        name = device_name(text)
        if name.whole:
            instances += [DesiredInstance(name.instance, (name.compute,))] * count
        else:
            parts.setdefault(name.instance, []).extend([name] * count)
    for profile, names in parts.items():
        instances += [DesiredInstance(profile, shared) for shared in _shared(names)]
    return GpuLayout(mig=True, instances=tuple(instances))


def _shared(names: list[DeviceName]) -> list[tuple[int, ...]]:
    """Compute instances of one profile on as few GPU instances as first-fit decreasing finds."""
    filled: list[list[int]] = []
    for name in sorted(names, key=lambda device: -device.compute):
        room = next((sizes for sizes in filled if sum(sizes) + name.compute <= name.slices), None)
        if room is None:
            filled.append([name.compute])
        else:
            room.append(name.compute)
    return [tuple(sizes) for sizes in filled]
