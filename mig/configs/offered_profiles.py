# SPDX-License-Identifier: Apache-2.0
"""Profiles that a GPU offers, from its driver or from the table of known models. Pure."""

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
    """Profiles of a GPU: names and counts; places and sizes if the driver reports them."""

    most: Mapping[str, int]
    """Profile to how many fit on an empty GPU."""
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Profile to the memory units where an instance may start; absent where not reported."""
    compute: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Profile to the slices that its compute instances may have; absent where not reported."""


def offered_profiles(gpu: MigGpu) -> OfferedProfiles | None:
    """Profiles that a GPU with MIG offers; None if neither the driver nor the table has them."""
    family = known_family(gpu.device_id)
    if not gpu.profiles:
        return None if family is None else OfferedProfiles(most=family.max_instances)
    counts = {profile.name: profile.max_instances for profile in gpu.profiles}
    if family is not None and counts_are_wrong(gpu.device_id):
        counts |= {name: count for name, count in family.max_instances.items() if name in counts}
    return OfferedProfiles(
        most=counts,
        starts={profile.name: profile.starts for profile in gpu.profiles},
        compute={
            profile.name: tuple(compute.slices for compute in profile.compute)
            for profile in gpu.profiles
            if profile.compute
        },
    )
