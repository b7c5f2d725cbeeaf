# SPDX-License-Identifier: Apache-2.0
"""The current layouts of GPUs as a configuration, as nvidia-mig-parted exports it. Pure.

The format counts MIG devices by name. It has no word for placements, for a GPU instance without
a compute instance, for a mode that waits, nor for how compute instances are spread over GPU
instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from base.errors import Permanent
from base.grouping import grouped
from discovery.mig_state import MigGpu
from mig.configs.mig_configs import DeviceFilter, MigConfig, MigConfigSpec
from mig.gpu_layout import GpuLayout, current_layout, layout_from_counts

CURRENT = "current"
"""Name that nvidia-mig-parted gives to the exported configuration."""


def present_config(
    gpus: Sequence[MigGpu], name: str = CURRENT, *, lossy: bool = False
) -> MigConfig:
    """The configuration of a node's current layouts, with one entry for all GPUs of equal layout.

    GPUs without MIG are in it, as with MIG off. If there are several models, filters separate
    them. Raises Permanent if there are no GPUs, and for what :func:`export_losses` names unless
    ``lossy``: it would be left out silently.
    """
    if not gpus:
        raise Permanent("there is no GPU here, so there is no layout to write")
    lost = [] if lossy else [loss for gpu in gpus for loss in export_losses(gpu)]
    if lost:
        raise Permanent(f"no configuration can express this: {'; '.join(lost)}")
    alike = grouped(gpus, _expressible)
    filtered = len(alike) > 1 and len({gpu.device_id for gpu in gpus}) > 1
    return MigConfig(
        name=name,
        specs=tuple(_spec(layout, members, gpus, filtered) for layout, members in alike.items()),
    )


def export_losses(gpu: MigGpu) -> Iterator[str]:
    """What the format cannot express about this GPU, each as a clause; mostly nothing."""
    if gpu.mode is not None and gpu.mode.current != gpu.mode.pending:
        now, after = ("on" if mode else "off" for mode in (gpu.mode.current, gpu.mode.pending))
        yield f"GPU {gpu.index}: MIG is {now} and will be {after} after a reset"
    for instance in gpu.instances:
        if not instance.compute:
            place = f"{instance.profile} at {instance.start}"
            yield f"GPU {gpu.index}: GPU instance {instance.id} ({place}) has no compute instance"
    used = tuple(instance for instance in current_layout(gpu).instances if instance.compute)
    if _expressible(gpu).instances != used:
        spread = "compute instances are spread over more GPU instances than they need"
        yield f"GPU {gpu.index}: {spread}"


def _expressible(gpu: MigGpu) -> GpuLayout:
    """The part of the current layout that the format can express."""
    layout = current_layout(gpu)
    return layout_from_counts(layout.devices()) if layout.mig else layout


def _spec(
    layout: GpuLayout, members: Sequence[MigGpu], gpus: Sequence[MigGpu], filtered: bool
) -> MigConfigSpec:
    """The entry of one layout: ``all`` devices if it has every GPU that its filters let through."""
    ids = {gpu.device_id for gpu in members}
    let_through = [gpu for gpu in gpus if not filtered or gpu.device_id in ids]
    every = len(members) == len(let_through)
    return MigConfigSpec(
        layout=layout,
        filters=tuple(DeviceFilter(device=device_id) for device_id in sorted(ids))
        if filtered
        else (),
        devices=None if every else frozenset(gpu.index for gpu in members),
    )
