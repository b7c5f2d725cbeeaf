# SPDX-License-Identifier: Apache-2.0
"""Labels of MIG devices, and whether the layouts of a node's GPUs agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api import keys
from api.mig_resources import resource_suffix
from discovery.model import GpuSnapshot, MigDevice, Reason
from labelers.decision import Decision, value
from labelers.groups.common_resource_labels import base_block, memory_mib
from labelers.groups.sharing import Sharing
from labelers.label_values import sanitise

Placed = tuple[GpuSnapshot, MigDevice]
"""A MIG device with the GPU it is on."""


def mode_known(gpu: GpuSnapshot) -> bool:
    """Whether the GPU reports that MIG is on or off, or that it has none."""
    gap = gpu.gap("mig")
    return gpu.mig_capable or (gap is not None and gap.reason is Reason.UNSUPPORTED)


def devices_known(gpu: GpuSnapshot) -> bool:
    """Whether all MIG devices of the GPU could be read, if it has MIG on."""
    missed = gpu.gap("mig_devices") or gpu.gap("max_mig_devices")
    return mode_known(gpu) and (missed is None or not gpu.mig_enabled)


def profile_suffix(device: MigDevice) -> str:
    """The profile as it stands in resource names and labels: ``1g.5gb.me`` for ``1g.5gb+me``."""
    return resource_suffix(device.profile)


def by_profile(gpus: Sequence[GpuSnapshot]) -> Mapping[str, tuple[Placed, ...]]:
    """Profile to the MIG devices on GPUs with MIG on, in bus order.

    A GPU with MIG off may still list devices; these are left out.
    """
    placed = [(gpu, device) for gpu in gpus if gpu.mig_enabled for device in gpu.mig_devices]
    return {
        profile: tuple((gpu, device) for gpu, device in placed if profile_suffix(device) == profile)
        for profile in sorted({profile_suffix(device) for _, device in placed})
    }


def single_fault(gpus: Sequence[GpuSnapshot]) -> str | None:
    """Why the GPUs do not fit the strategy ``single``; None when they are all cut alike."""
    cut = [gpu for gpu in gpus if gpu.mig_enabled]
    if any(not gpu.mig_devices for gpu in cut):
        return "a GPU with MIG on has no MIG device"
    if len(cut) != len(gpus):
        return "MIG is on for some GPUs and off for others"
    profiles = by_profile(gpus)
    if len(profiles) != 1:
        return f"there are MIG devices of several profiles: {', '.join(profiles)}"
    return None


def device_block(
    gpus: Sequence[GpuSnapshot], profile: str, resource: str, sharing: Sharing
) -> dict[str, Decision]:
    """Label suffix to value for the MIG devices of one profile, offered as ``resource``.

    Model and sizes are those of the first device in bus order.
    """
    devices = by_profile(gpus)[profile]
    parent, first = devices[0]
    name = f"{sanitise(parent.model or '')}-MIG-{sanitise(profile)}"
    return {
        **base_block(name, value(len(devices)), sharing.resource(resource), sharing),
        keys.MEMORY: memory_mib(first.memory_bytes),
        "multiprocessors": value(first.multiprocessors),
        "slices.gi": value(first.gpu_instance_slices),
        "slices.ci": value(first.compute_instance_slices),
        "engines.copy": value(first.copy_engines),
        "engines.decoder": value(first.decoders),
        "engines.encoder": value(first.encoders),
        "engines.jpeg": value(first.jpeg_engines),
        "engines.ofa": value(first.ofa_engines),
    }
