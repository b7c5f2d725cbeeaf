# SPDX-License-Identifier: Apache-2.0
"""What GPUs look like now, as a configuration: the one that nvidia-mig-parted exports. Pure.

The format counts MIG devices by name. It has no word for placements, for a GPU instance without
a compute instance, for a mode that waits, nor for how compute instances are spread over GPU
instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from base.errors import Permanent
from discovery.mig_state import MigGpu
from mig.configs.mig_configs import DeviceFilter, MigConfig, MigConfigSpec
from mig.gpu_layout import GpuLayout, counted, found_layout

CURRENT = "current"
"""The name that nvidia-mig-parted gives it."""


def present_config(
    gpus: Sequence[MigGpu], name: str = CURRENT, *, lossy: bool = False
) -> MigConfig:
    """The configuration that a node's GPUs have now, with an entry for those that look the same.

    GPUs without MIG are in it, as with MIG off. Models are told apart by filters where there are
    several. Raises Permanent where there are no GPUs, and for what :func:`losses` names unless
    ``lossy``: what was left out would be lost without a word.
    """
    if not gpus:
        raise Permanent("there is no GPU here, so there is no layout to write")
    lost = [] if lossy else [loss for gpu in gpus for loss in losses(gpu)]
    if lost:
        raise Permanent(f"no configuration says this: {'; '.join(lost)}")
    alike: dict[GpuLayout, list[MigGpu]] = {}
    for gpu in gpus:
        alike.setdefault(_expressible(gpu), []).append(gpu)
    filtered = len(alike) > 1 and len({gpu.device_id for gpu in gpus}) > 1
    return MigConfig(
        name=name,
        specs=tuple(_spec(layout, found, gpus, filtered) for layout, found in alike.items()),
    )


def losses(gpu: MigGpu) -> Iterator[str]:
    """What the format cannot say of this GPU, each as a clause; none as a rule."""
    if gpu.mode is not None and gpu.mode.current != gpu.mode.pending:
        now, after = ("on" if mode else "off" for mode in (gpu.mode.current, gpu.mode.pending))
        yield f"GPU {gpu.index}: MIG is {now} and will be {after} after a reset"
    for one in gpu.instances:
        if not one.compute:
            place = f"{one.profile} at {one.start}"
            yield f"GPU {gpu.index}: GPU instance {one.id} ({place}) has no compute instance"
    used = tuple(one for one in found_layout(gpu).instances if one.compute)
    if _expressible(gpu).instances != used:
        spread = "compute instances are spread over more GPU instances than they need"
        yield f"GPU {gpu.index}: {spread}"


def _expressible(gpu: MigGpu) -> GpuLayout:
    """What the format has of the layout of now."""
    layout = found_layout(gpu)
    return counted(layout.devices()) if layout.mig else layout


def _spec(
    layout: GpuLayout, found: Sequence[MigGpu], gpus: Sequence[MigGpu], filtered: bool
) -> MigConfigSpec:
    """All devices where the entry has every GPU that its filters let through."""
    ids = {gpu.device_id for gpu in found}
    let_through = [gpu for gpu in gpus if not filtered or gpu.device_id in ids]
    every = len(found) == len(let_through)
    return MigConfigSpec(
        layout=layout,
        filters=tuple(DeviceFilter(device=one) for one in sorted(ids)) if filtered else (),
        devices=None if every else tuple(sorted(gpu.index for gpu in found)),
    )
