# SPDX-License-Identifier: Apache-2.0
"""Resources that NVIDIA's device plugin offers for a node's layouts, or why it cannot start. Pure.

Source: k8s-device-plugin v0.19.0, internal/rm/device_map.go and rm.go, api/config/v1/resources.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from api.mig_resources import GPU_RESOURCE, MigStrategy, mig_resource
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout

LaidOut = Sequence[tuple[MigGpu, GpuLayout]]
"""Each GPU of the node with the layout that it has, or will have."""


def unserved(gpus: LaidOut, strategy: MigStrategy) -> str | None:
    """Why the plugin cannot serve the layouts; None if it can.

    With ``single`` it ends at once where a GPU with MIG has no device, where devices differ, and
    where MIG is on for a part of the GPUs. With ``none`` it starts, and offers GPUs that no program
    can use.
    """
    cut = [(gpu, layout) for gpu, layout in gpus if layout.mig]
    if not cut or strategy is MigStrategy.MIXED:
        return None
    if strategy is MigStrategy.NONE:
        return "its strategy none offers whole GPUs alone, and MIG would be on for some"
    empty = [gpu.index for gpu, layout in cut if not layout.devices()]
    if empty:
        return f"its strategy single needs MIG devices on each GPU; {_gpus(empty)} would have none"
    if len(cut) < len(gpus):
        off = [gpu.index for gpu, layout in gpus if not layout.mig]
        return f"its strategy single needs MIG on all GPUs; it would be off on {_gpus(off)}"
    kinds = {_attributes(gpu, name) for gpu, layout in cut for name in layout.devices()}
    if len(kinds) > 1:
        names = sorted({name for _, layout in cut for name in layout.devices()})
        return f"its strategy single needs devices of one kind; there would be {', '.join(names)}"
    return None


def allocatable(gpus: LaidOut, strategy: MigStrategy) -> Mapping[str, int]:
    """Allocatable resources by name, as the kubelet reports them after the plugin has restarted.

    Without replicas of shared GPUs. A resource that the node had before may stay with 0.
    """
    counts: Counter[str] = Counter()
    profiles = [
        profile.name
        for gpu, _ in gpus
        for profile in sorted(gpu.profiles, key=lambda profile: profile.number)
    ]
    for _, layout in gpus:
        if not layout.mig or strategy is MigStrategy.NONE:
            counts[GPU_RESOURCE] += 1
            continue
        for name, count in layout.devices().items():
            is_single = strategy is MigStrategy.SINGLE
            counts[GPU_RESOURCE if is_single else _mixed_resource(name, profiles)] += count
    return dict(sorted(counts.items()))


def _mixed_resource(device: str, profiles: Sequence[str]) -> str:
    """The resource of the first profile whose name is anywhere in the device's name.

    So ``1g.5gb+me`` and ``1c.1g.5gb`` are ``mig-1g.5gb``: the plugin uses profile names as patterns
    that may match any part of a name. ``profiles``: those of all GPUs, in the plugin's order.
    """
    return mig_resource(next((profile for profile in profiles if profile in device), device))


def _attributes(gpu: MigGpu, device: str) -> tuple[object, ...]:
    """Values that devices of one kind share; models may use one name for different sizes."""
    profile = gpu.profile(device.split("c.", 1)[-1])
    if profile is None:
        return (device, gpu.model)
    return (device, profile.memory_bytes, profile.multiprocessors, profile.engines)


def _gpus(indices: Sequence[int]) -> str:
    return f"GPU{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"
