# SPDX-License-Identifier: Apache-2.0
"""Layouts that a change has reached, so that they can come back after a reboot. Pure.

No GPU keeps its instances over a reset, a reboot or a load of the driver; from Hopper on MIG itself
is off then (MIG user guide, "Enable MIG mode"). A MIG device's UUID follows from the GPU and the
ids of its instances: of a GPU instance by its place, of a compute instance the lowest that is free.
So the same places, made in the order of the old ids, give the same UUIDs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from api.versioned import VersionedFormat
from discovery.mig_state import CurrentInstance, MigGpu
from mig.gpu_layout import GpuLayout, placed_instance
from mig.steps import CreateCompute, CreateInstance, MigStep, SetMode

VERSION = 2


class VerifiedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Layout of a GPU with MIG on, as a fresh session showed it after a change."""

    load: str
    """Id of the driver's load, see :meth:`actuator.mig_world.MigWorld.driver_load`."""
    instances: tuple[CurrentInstance, ...]
    """In the order of their ids."""

    @classmethod
    def from_gpu(cls, gpu: MigGpu, load: str) -> VerifiedLayout:
        """The current layout of a GPU."""
        return cls(load=load, instances=gpu.instances)

    def layout(self) -> GpuLayout:
        """The layout, each instance at its place."""
        return GpuLayout(mig=True, instances=tuple(map(placed_instance, self.instances)))

    def steps(self, gpu: MigGpu) -> Iterator[MigStep]:
        """Steps from a GPU without instances to this layout, in the order of the old ids."""
        if gpu.mode is not None and not gpu.mode.current:
            yield SetMode(gpu=gpu.uuid, on=True)
        for instance in self.instances:
            yield CreateInstance(
                gpu=gpu.uuid, profile=instance.profile, start=instance.start, size=instance.size
            )
            for part in instance.compute:
                yield CreateCompute(
                    gpu=gpu.uuid, start=instance.start, slices=part.slices, first=part.start
                )

    def gone(self, gpu: MigGpu) -> tuple[str, ...]:
        """UUIDs of MIG devices that the GPU no longer has, sorted."""
        present = {compute.uuid for _, compute in gpu.devices()}
        known = {part.uuid for instance in self.instances for part in instance.compute}
        return tuple(sorted(uuid for uuid in known - present if uuid is not None))


class VerifiedLayouts(msgspec.Struct, frozen=True, kw_only=True):
    """Verified layouts by GPU UUID; GPUs with MIG off are not in it."""

    v: int = VERSION
    gpus: dict[str, VerifiedLayout] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredGpu:
    """Result of restoring a GPU that lost its instances to a new load of the driver."""

    gpu: str
    """UUID."""
    why_not: str = ""
    """Why its layout did not come back; empty where it did."""
    gone: tuple[str, ...] = ()
    """UUIDs of MIG devices that did not come back with it: pods that hold one cannot use it, and a
    kubelet with a NUMA policy does not start while one is bound."""


VERIFIED = VersionedFormat(
    name="the file of verified MIG layouts",
    remedy="it begins anew with the next change",
    content=VerifiedLayouts,
    version=VERSION,
    most_length=1 << 18,
)
