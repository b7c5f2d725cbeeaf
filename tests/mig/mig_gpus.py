# SPDX-License-Identifier: Apache-2.0
"""GPUs as the driver reports them: models of the simulator, with the instances that are named."""

from __future__ import annotations

from dataclasses import replace

from discovery.mig_state import ComputeProfile, CurrentCompute, CurrentInstance, MigGpu
from discovery.model import Mode
from simulator.description.machine_catalog import load_models
from tests.mig import grids

OFF = Mode(current=False, pending=False)
ON = Mode(current=True, pending=True)
TO_ON = Mode(current=False, pending=True)
TO_OFF = Mode(current=True, pending=False)

A100 = "a100-sxm4-40gb"
A100_80 = "a100-sxm4-80gb"
A30 = "a30"
H100 = "h100-sxm5-80gb"
RTX_PRO = "rtx-pro-6000"
T4 = "t4"


def uuid(index: int) -> str:
    """Of the GPU with this index."""
    return f"GPU-00000000-0000-0000-0000-{index:012x}"


def mig_gpu(
    index: int = 0,
    model: str = A100,
    *instances: CurrentInstance,
    mode: Mode | None = OFF,
    silent: bool = False,
) -> MigGpu:
    """The ``index``-th GPU. A model without MIG has no mode; ``silent``: no profiles reported."""
    described = load_models()[model]
    profiles = tuple(
        replace(
            one,
            compute=tuple(
                ComputeProfile(slices=size, id=size)
                for size in (1, 2, 3, 4, 7)
                if size <= one.slices
            ),
        )
        for one in grids.profiles(model)
    )
    return MigGpu(
        index=index,
        uuid=uuid(index),
        bus_id=f"0000:{0x10 + index:02x}:00.0",
        model=described.name,
        device_id=described.device_id,
        subsystem_id=described.subsystem_id,
        mode=mode if profiles else None,
        profiles=() if silent else profiles,
        instances=instances,
    )


def instance(id: int, profile: str, start: int, *sizes: int) -> CurrentInstance:  # noqa: A002
    """A GPU instance with compute instances of these sizes, none for none."""
    return CurrentInstance(
        id=id,
        profile=profile,
        start=start,
        size=0,
        compute=tuple(
            CurrentCompute(id=at, slices=size, start=sum(sizes[:at]), uuid=f"MIG-{id}-{at}")
            for at, size in enumerate(sizes)
        ),
    )
