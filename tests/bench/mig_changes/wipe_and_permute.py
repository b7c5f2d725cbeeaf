# SPDX-License-Identifier: Apache-2.0
"""How a layout is made without a plan: destroy everything, create, and try another order.

What nvidia-mig-parted does, in a few lines over pynvml: the largest first, then all permutations,
everything destroyed before each of them; the driver chooses the places. Whether there is anything
to destroy it learns from compute instances. Source: mig-parted v0.10.0, pkg/mig/config.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pynvml

from discovery.mig_state import MigGpu, MigProfile
from discovery.nvml.mig_gpu import read_mig_gpu

_COMPUTE_IDS = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""Slices of a compute instance to its profile. Source: nvml.h."""


def wipe_and_permute(bus_id: str, wanted: Mapping[str, int]) -> bool:
    """Whether it says that it made the layout, on a GPU with MIG on, in a session that is open."""
    device = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
    found = read_mig_gpu(bus_id)
    assert isinstance(found, MigGpu)
    if dict(devices(found)) == dict(wanted):
        return True
    known = {one.name: one for one in found.profiles}
    if not set(wanted) <= set(known):
        wipe(device, found)
        return True  # an unknown profile makes the list of what is to be created empty
    largest_first = sorted(Counter(wanted).elements(), key=lambda name: (-known[name].slices, name))
    for order in _orders(largest_first):
        try:
            present = read_mig_gpu(bus_id)
            assert isinstance(present, MigGpu)
            if devices(present):
                wipe(device, present)
            _make(device, [known[name] for name in order])
        except pynvml.NVMLError:
            continue
        return True
    try:
        left = read_mig_gpu(bus_id)
        assert isinstance(left, MigGpu)
        wipe(device, left)
    except pynvml.NVMLError:
        return False
    return False


def devices(gpu: MigGpu) -> Counter[str]:
    """What it takes for the layout: an instance without a compute instance is not seen."""
    return Counter(one.profile for one in gpu.instances for _ in one.compute)


def wipe(device: Any, gpu: MigGpu) -> None:
    """Destroy every instance. Raises NVMLError at the first that is in use."""
    for one in gpu.instances:
        instance = pynvml.nvmlDeviceGetGpuInstanceById(device, one.id)
        for compute in one.compute:
            pynvml.nvmlComputeInstanceDestroy(
                pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, compute.id)
            )
        pynvml.nvmlGpuInstanceDestroy(instance)


def _make(device: Any, profiles: Sequence[MigProfile]) -> None:
    for one in profiles:
        instance = pynvml.nvmlDeviceCreateGpuInstance(device, one.id)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, _COMPUTE_IDS[one.slices])


def _orders(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every order, each once, the given one first."""
    if not names:
        yield ()
    for first in dict.fromkeys(names):
        rest = list(names)
        rest.remove(first)
        for others in _orders(rest):
            yield (first, *others)
