# SPDX-License-Identifier: Apache-2.0
"""Which GPU instances a GPU offers, from its driver or from the table of known models. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from discovery.mig_state import MigGpu
from mig.configs.known_mig_models import counts_are_wrong, known_family

COMPUTE_SIZES: Final = (1, 2, 3, 4, 6, 7, 8)
"""Slices of compute instances. Source: nvml.h, NVML_COMPUTE_INSTANCE_PROFILE_*."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedProfiles:
    """Names and counts, and as much as the driver reports of the rest."""

    most: Mapping[str, int]
    """Profile to how many fit on an empty GPU."""
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Profile to the memory units where an instance may start; absent where not reported."""
    compute: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Profile to the slices that its compute instances may have; absent where not reported."""


def offered_profiles(gpu: MigGpu) -> OfferedProfiles | None:
    """What a GPU with MIG offers; None where neither driver nor table know."""
    family = known_family(gpu.device_id)
    if not gpu.profiles:
        return None if family is None else OfferedProfiles(most=family.most)
    most = {one.name: one.most for one in gpu.profiles}
    if family is not None and counts_are_wrong(gpu.device_id):
        most |= {name: count for name, count in family.most.items() if name in most}
    return OfferedProfiles(
        most=most,
        starts={one.name: one.starts for one in gpu.profiles},
        compute={
            one.name: tuple(each.slices for each in one.compute)
            for one in gpu.profiles
            if one.compute
        },
    )
