# SPDX-License-Identifier: Apache-2.0
"""One GPU that takes a plan's steps and refuses what hardware refuses; and found states for plans.

It shares nothing with the planner but the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, product

from discovery.mig_state import ComputeProfile, CurrentCompute, CurrentInstance, MigGpu, MigProfile
from discovery.model import Mode
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)
from tests.mig.grids import profiles

ON = Mode(current=True, pending=True)

COMPUTE_SIZES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Slices of a GPU instance to those of its compute instances.
Source: `nvidia-smi mig -lcip`, MIG user guide."""
COMPUTE_STARTS = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
"""Slices of a compute instance to where it may start, as 4c and 3c share a 7g."""


def mig_gpu(
    model: str,
    *placed: tuple[str, int] | tuple[str, int, Sequence[int]],
    uuid: str = "GPU-0",
    index: int = 0,
    mode: Mode | None = ON,
    resetless: bool = False,
) -> MigGpu:
    """A GPU of a simulated model with instances: profile, start, compute slices if not all."""
    known = {one.name: one for one in profiles(model)}
    return MigGpu(
        index=index,
        uuid=uuid,
        bus_id=f"0000:{index:02x}:00.0",
        model=model,
        device_id=0x20B010DE,
        subsystem_id=0,
        mode=mode,
        resetless=resetless,
        profiles=tuple(known.values()),
        instances=tuple(
            sorted(
                (
                    _instance(uuid, known, one[0], one[1], one[2] if len(one) > 2 else None)
                    for one in placed
                ),
                key=lambda one: one.id,
            )
        ),
    )


def as_read(gpu: MigGpu) -> MigGpu:
    """With the compute instances that the driver offers in the profiles that are there to ask."""
    there = {one.profile for one in gpu.instances}
    read = (
        replace(
            one,
            compute=tuple(
                ComputeProfile(
                    slices=size,
                    id=size,
                    starts=tuple(at for at in COMPUTE_STARTS[size] if at + size <= one.slices),
                )
                for size in COMPUTE_SIZES[one.slices]
            )
            if one.name in there
            else (),
        )
        for one in gpu.profiles
    )
    return replace(gpu, profiles=tuple(read))


def _instance(
    gpu: str,
    known: Mapping[str, MigProfile],
    name: str,
    start: int,
    compute: Sequence[int] | None,
) -> CurrentInstance:
    parts = (known[name].slices,) if compute is None else compute
    number = _instance_id(known.values(), known[name].size, start)
    return CurrentInstance(
        id=number,
        profile=name,
        start=start,
        size=known[name].size,
        compute=tuple(
            CurrentCompute(id=at, slices=slices, start=start, uuid=_device_uuid(gpu, number, at))
            for at, (slices, start) in enumerate(
                zip(parts, _compute_starts(known[name].slices, parts), strict=True)
            )
        ),
    )


def _compute_starts(slices: int, parts: Sequence[int]) -> Sequence[int]:
    """The first starts at which these compute instances fit, the lowest for the first of them."""
    for starts in product(*(COMPUTE_STARTS[size] for size in parts)):
        taken = [
            at
            for start, size in zip(starts, parts, strict=True)
            for at in range(start, start + size)
        ]
        if len(set(taken)) == len(taken) and max(taken, default=0) < slices:
            return starts
    raise ValueError(f"no places for {parts} in {slices} slices")


def _instance_id(known: Iterable[MigProfile], size: int, start: int) -> int:
    """By place, as on hardware: the whole GPU is 0, its halves 1 and 2, and so on."""
    units = max(one.starts[-1] + one.size for one in known)
    return units // size - 1 + start // size


def _device_uuid(gpu: str, instance: int, compute: int) -> str:
    """By ids, as on hardware."""
    return f"MIG-{gpu}-{instance}-{compute}"


class RefusedStep(Exception):
    """What hardware answers with an error."""


class NaiveGpu:
    """Instances in a list; every call is checked against all of them."""

    def __init__(self, gpu: MigGpu) -> None:
        self.gpu = gpu
        self._profiles = {one.name: one for one in gpu.profiles}

    def take(self, step: MigStep) -> None:
        """Do it, or raise RefusedStep."""
        match step:
            case SetMode():
                self._switch(on=step.on)
            case DestroyCompute():
                one = self._by_id(step.instance)
                left = tuple(c for c in one.compute if c.id != step.compute)
                self._check(len(left) < len(one.compute), "no such compute instance")
                self._swap(one, replace(one, compute=left))
            case DestroyInstance():
                one = self._by_id(step.instance)
                self._check(not one.compute, "in use: it has compute instances")
                self._check((one.profile, one.start) == (step.profile, step.start), "another one")
                self._swap(one)
            case CreateInstance():
                self._create(step)
            case CreateCompute():
                self._create_compute(self._at(step.start), step.slices, step.first)

    def counts(self) -> Counter[tuple[str, tuple[int, ...]]]:
        """Profiles with their compute slices."""
        return Counter(
            (one.profile, tuple(sorted((c.slices for c in one.compute), reverse=True)))
            for one in self.gpu.instances
        )

    def _switch(self, *, on: bool) -> None:
        self._check(self.gpu.resetless, "reset required")
        self._check(not self.gpu.instances, "in use: there are instances")
        self.gpu = replace(self.gpu, mode=Mode(current=on, pending=on))

    def _create(self, step: CreateInstance) -> None:
        self._check(self.gpu.mode is not None and self.gpu.mode.current, "MIG is off")
        profile = self._profiles[step.profile]
        self._check(step.start in profile.starts and step.size == profile.size, "no such place")
        end = step.start + profile.size
        for other in self.gpu.instances:
            apart = end <= other.start or other.start + other.size <= step.start
            self._check(apart, "insufficient resources: overlap")
        same = sum(1 for other in self.gpu.instances if other.profile == profile.name)
        self._check(same < profile.max_instances, "insufficient resources: too many")
        made = CurrentInstance(
            id=_instance_id(self._profiles.values(), profile.size, step.start),
            profile=profile.name,
            start=step.start,
            size=profile.size,
        )
        self._set(*self.gpu.instances, made)

    def _create_compute(self, one: CurrentInstance, slices: int, first: int) -> None:
        """At the slice that is asked for; where none is, at the first free one."""
        all_of_it = self._profiles[one.profile].slices
        self._check(slices in COMPUTE_SIZES[all_of_it], "no such compute instance")
        starts = [at for at in COMPUTE_STARTS[slices] if at + slices <= all_of_it]
        self._check(first == -1 or first in starts, "no such place")
        used = {at for c in one.compute for at in range(c.start, c.start + c.slices)}
        free = [at for at in starts if used.isdisjoint(range(at, at + slices))]
        start = next((at for at in free if first in (-1, at)), None)
        if start is None:
            raise RefusedStep("insufficient resources")
        number = next(n for n in count() if n not in {c.id for c in one.compute})
        uuid = _device_uuid(self.gpu.uuid, one.id, number)
        made = CurrentCompute(id=number, slices=slices, start=start, uuid=uuid)
        parts = sorted((*one.compute, made), key=lambda compute: compute.id)
        self._swap(one, replace(one, compute=tuple(parts)))

    def _by_id(self, number: int) -> CurrentInstance:
        found = next((one for one in self.gpu.instances if one.id == number), None)
        if found is None:
            raise RefusedStep(f"not found: GPU instance {number}")
        return found

    def _at(self, start: int) -> CurrentInstance:
        found = next((one for one in self.gpu.instances if one.start == start), None)
        if found is None:
            raise RefusedStep(f"not found: a GPU instance at {start}")
        return found

    def _swap(self, old: CurrentInstance, *new: CurrentInstance) -> None:
        self._set(*(one for one in self.gpu.instances if one is not old), *new)

    def _set(self, *instances: CurrentInstance) -> None:
        self.gpu = replace(self.gpu, instances=tuple(sorted(instances, key=lambda one: one.id)))

    def _check(self, fine: bool, why: str) -> None:
        if not fine:
            raise RefusedStep(why)
