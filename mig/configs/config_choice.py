# SPDX-License-Identifier: Apache-2.0
"""Desired layouts of one node's GPUs by a configuration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from base.errors import BadInput
from discovery.mig_state import MigGpu
from mig.configs.config_overlap import Overlap
from mig.configs.default_configs import generated_configs
from mig.configs.layout_entries import LayoutEntry, agreed_layouts, gpu_title
from mig.configs.mig_configs import DeviceFilter, MigConfig, MigConfigs, MigConfigSpec
from mig.gpu_layout import GpuLayout

_OVERLAP_REMEDY: Final = (
    "leave it out of one of them, or let the last entry decide (--overlap last, for an agent"
    " mig-config-overlap: last)"
)


def named_layouts(
    configs: MigConfigs | None, name: str | None, gpus: Sequence[MigGpu]
) -> dict[str, GpuLayout]:
    """Desired layouts by the configuration of this name; see :func:`config_layouts`.

    ``configs`` None: the default configurations for these GPUs. Raises BadInput also as
    :meth:`MigConfigs.selected`.
    """
    among = generated_configs(gpus) if configs is None else configs
    return config_layouts(among.selected(name), gpus)


def config_layouts(config: MigConfig, gpus: Sequence[MigGpu]) -> dict[str, GpuLayout]:
    """GPU UUID to the layout that the configuration desires, for the GPUs that it matches.

    ``gpus``: all of the node, those without MIG too. Entries for models that the node does not
    have are passed over, as long as every GPU with MIG is matched by another one.
    Raises BadInput naming the place where an entry would silently do nothing: an index that does
    not exist or is of another model than the filter, no match at all, filters without a match
    while a GPU is left out; and as :func:`agreed_layouts` does. Where the last entry decides, the
    earlier ones of a GPU do not count.
    """
    layout_entries: list[LayoutEntry] = []
    unmatched: list[MigConfigSpec] = []
    for spec in config.specs:
        matching = _filtered(spec.filters, gpus)
        if spec.filters and not matching:
            unmatched.append(spec)
        else:
            layout_entries.append(_layout_entry(spec, matching, gpus))
    if unmatched:
        _check_left_out(unmatched[0], layout_entries, gpus)
    if config.overlap is Overlap.LAST:
        layout_entries = _deciding(layout_entries)
    return agreed_layouts(layout_entries, remedy=_OVERLAP_REMEDY)


def _deciding(layout_entries: Sequence[LayoutEntry]) -> list[LayoutEntry]:
    """The entries, each without the GPUs that a later one matches.

    So decides the last match in ``nvidia-mig-parted``, whose ``apply`` gives a GPU the layouts of
    all its entries in turn and whose ``assert`` compares with the last one.
    Source: mig-parted v0.15.0, cmd/nvidia-mig-parted/apply/config.go and assert/config.go.
    """
    return [
        replace(
            entry,
            gpus=tuple(
                gpu
                for gpu in entry.gpus
                if not any(gpu in later.gpus for later in layout_entries[position + 1 :])
            ),
        )
        for position, entry in enumerate(layout_entries)
    ]


def _layout_entry(
    spec: MigConfigSpec, matching: tuple[MigGpu, ...], gpus: Sequence[MigGpu]
) -> LayoutEntry:
    if spec.devices is not None:
        matching = tuple(_indexed(spec, index, matching, gpus) for index in spec.devices)
    elif spec.layout.mig and not gpus:
        raise BadInput(f"{spec.places.devices}: this node has no GPU")
    return LayoutEntry(
        layout=spec.layout,
        gpus=matching,
        named=spec.devices is not None,
        place=spec.places.devices,
        layout_place=spec.places.layout,
        profile_places=spec.places.profiles,
    )


def _indexed(
    spec: MigConfigSpec, index: int, matching: Sequence[MigGpu], gpus: Sequence[MigGpu]
) -> MigGpu:
    gpu = next((candidate for candidate in gpus if candidate.index == index), None)
    if gpu is None:
        raise BadInput(f"{spec.places.devices}: there is no GPU {index}; {_there_are(gpus)}")
    if gpu not in matching:
        ids = ", ".join(map(str, spec.filters))
        raise BadInput(
            f"{spec.places.devices}: {gpu_title(gpu)} is {_ids(gpu)}, which the device-filter"
            f" {ids} leaves out"
        )
    return gpu


def _check_left_out(
    spec: MigConfigSpec, layout_entries: Sequence[LayoutEntry], gpus: Sequence[MigGpu]
) -> None:
    """A filter without a match is another model's or a slip; a GPU that is left out decides."""
    matched = {gpu.uuid for layout_entry in layout_entries for gpu in layout_entry.gpus}
    left_out = [gpu for gpu in gpus if gpu.uuid not in matched and gpu.mode is not None]
    filters = ", ".join(map(str, spec.filters))
    if left_out:
        raise BadInput(
            f"{spec.places.filters}: no GPU here is {filters}, and no entry matches"
            f" {gpu_title(left_out[0])}, which is {_ids(left_out[0])}"
        )
    if not layout_entries:
        raise BadInput(f"{spec.places.filters}: no GPU here is {filters}; {_there_are(gpus)}")


def _filtered(filters: Sequence[DeviceFilter], gpus: Sequence[MigGpu]) -> tuple[MigGpu, ...]:
    return tuple(
        gpu
        for gpu in gpus
        if not filters or any(device_filter.matches(gpu) for device_filter in filters)
    )


def _ids(gpu: MigGpu) -> str:
    return str(DeviceFilter(device=gpu.device_id, subsystem=gpu.subsystem_id))


def _there_are(gpus: Sequence[MigGpu]) -> str:
    models = ", ".join(f"{gpu.index} {_ids(gpu)}" for gpu in gpus[:16])
    return f"there are: {models}" if gpus else "this node has none"
