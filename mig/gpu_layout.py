# SPDX-License-Identifier: Apache-2.0
"""What a GPU is to look like: MIG on or off, and which instances. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from base.errors import BadInput
from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.profile_names import DeviceName, device_name


@dataclass(frozen=True, slots=True, order=True)
class WantedInstance:
    """A GPU instance with its compute instances. Two that are equal may take each other's place."""

    profile: str
    """``3g.20gb``, ``1g.5gb+me``: without compute slices in front."""
    compute: tuple[int, ...]
    """Slices of each compute instance, the largest first; the whole instance is ``(slices,)``."""
    start: int = -1
    """First memory unit, where a certain one is asked for; -1 for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLayout:
    """One GPU's layout in canonical form: two that mean the same are equal."""

    mig: bool
    instances: tuple[WantedInstance, ...] = ()
    """Sorted; empty with MIG off."""

    def __post_init__(self) -> None:
        """Sorts the instances. Raises ValueError for instances with MIG off."""
        if self.instances and not self.mig:
            raise ValueError("instances with MIG off")
        object.__setattr__(self, "instances", tuple(sorted(self.instances)))

    def devices(self) -> Counter[str]:
        """MIG devices by canonical name, as a configuration file counts them."""
        found: Counter[str] = Counter()
        for one in self.instances:
            slices = int(one.profile.split("g.", 1)[0])
            found.update(one.profile if c == slices else f"{c}c.{one.profile}" for c in one.compute)
        return found


MOST_DEVICES: Final = 64
"""On one GPU, far above what there is; a bound on work, not a fact about GPUs."""

MIG_OFF = GpuLayout(mig=False)


def found_layout(gpu: MigGpu, *, exact: bool = False) -> GpuLayout:
    """What a GPU has now; with ``exact`` each instance at its place, as a rollback needs it.

    A GPU instance without compute instances is in it, and makes it unequal to any layout that a
    configuration asks for.
    """
    if gpu.mode is None or not gpu.mode.current:
        return MIG_OFF
    return GpuLayout(
        mig=True,
        instances=tuple(
            WantedInstance(
                one.profile,
                tuple(sorted((compute.slices for compute in one.compute), reverse=True)),
                one.start if exact else -1,
            )
            for one in gpu.instances
        ),
    )


def has_layout(gpu: MigGpu, layout: GpuLayout) -> bool:
    """Whether a GPU is as a layout has it, with nothing left over and no change of mode pending."""
    if gpu.mode is None:
        return not layout.mig
    if gpu.mode != Mode(current=layout.mig, pending=layout.mig):
        return False
    placed = frozenset(found_layout(gpu, exact=True).instances)
    anywhere = Counter(replace(one, start=-1) for one in layout.instances)
    return Counter(found_layout(gpu).instances) == anywhere and all(
        one in placed for one in layout.instances if one.start >= 0
    )


def counted(devices: Mapping[str, int]) -> GpuLayout:
    """The layout of MIG devices by name and count, as a configuration file has them.

    Zeros are dropped and names brought to canonical form. Parts of GPU instances share as few
    instances as they fit into: the largest first, each into the first instance with room. Raises
    BadInput for a name that is none, and for more devices than any GPU has.
    """
    if sum(devices.values()) > MOST_DEVICES:
        raise BadInput(f"{sum(devices.values())} MIG devices; no GPU has more than {MOST_DEVICES}")
    instances: list[WantedInstance] = []
    parts: dict[str, list[DeviceName]] = {}
    for text, count in devices.items():
        name = device_name(text)
        if name.whole:
            instances += [WantedInstance(name.instance, (name.compute,))] * count
        else:
            parts.setdefault(name.instance, []).extend([name] * count)
    for profile, names in parts.items():
        instances += [WantedInstance(profile, shared) for shared in _shared(names)]
    return GpuLayout(mig=True, instances=tuple(instances))


def _shared(names: list[DeviceName]) -> list[tuple[int, ...]]:
    """Compute instances of one profile on as few GPU instances as first-fit decreasing finds."""
    filled: list[list[int]] = []
    for name in sorted(names, key=lambda one: -one.compute):
        room = next((one for one in filled if sum(one) + name.compute <= name.slices), None)
        if room is None:
            filled.append([name.compute])
        else:
            room.append(name.compute)
    return [tuple(one) for one in filled]
