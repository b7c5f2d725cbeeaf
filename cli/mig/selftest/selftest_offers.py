# SPDX-License-Identifier: Apache-2.0
"""Comparison of a driver's MIG profiles with what gpuscape knows of the GPU's model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from discovery.mig_state import MigGpu, MigProfile
from mig.configs.known_mig_models import counts_are_wrong, known_family
from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import GpuInstanceProfile

MIB: Final = 1 << 20

TABLE: Final = "known_mig_models.py"
"""Source of names and counts by PCI id: gpuscape's table of MIG models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferComparison:
    """Differences between the driver's profiles and those of another source."""

    source: str
    """Name of the source that the driver is compared with."""
    known: bool
    """Whether the source has this model."""
    differences: tuple[str, ...] = ()


def offer_comparisons(gpu: MigGpu, profiles: Sequence[MigProfile]) -> tuple[OfferComparison, ...]:
    """Compare a driver's profiles with the table of known models, and with the simulator's model.

    The simulator's model is one with the GPU's PCI id: of several the one with the fewest
    differences.
    """
    return _with_table(gpu, profiles), _with_simulator(gpu, profiles)


def _with_table(gpu: MigGpu, profiles: Sequence[MigProfile]) -> OfferComparison:
    family = known_family(gpu.device_id)
    if family is None:
        return OfferComparison(source=TABLE, known=False)
    driver_counts = {profile.name: profile.max_instances for profile in profiles}
    differences = [
        f"{name}: only the driver has it"
        for name in driver_counts.keys() - family.max_instances.keys()
    ]
    differences += [
        f"{name}: only the table has it"
        for name in family.max_instances.keys() - driver_counts.keys()
    ]
    if not counts_are_wrong(gpu.device_id):
        differences += [
            f"{name}: at most {count} by the driver, {family.max_instances[name]} by the table"
            for name, count in driver_counts.items()
            if family.max_instances.get(name, count) != count
        ]
    return OfferComparison(source=TABLE, known=True, differences=tuple(sorted(differences)))


def _with_simulator(gpu: MigGpu, profiles: Sequence[MigProfile]) -> OfferComparison:
    comparisons = [
        OfferComparison(
            source=f"simulated {name}",
            known=True,
            differences=tuple(_differences(profiles, model.mig)),
        )
        for name, model in sorted(load_models().items())
        if model.mig and model.device_id == gpu.device_id
    ]
    if not comparisons:
        return OfferComparison(source="simulator", known=False)
    return min(comparisons, key=lambda comparison: len(comparison.differences))


def _differences(
    profiles: Sequence[MigProfile], simulated: Sequence[GpuInstanceProfile]
) -> Iterator[str]:
    driver = {profile.name: _driver_fields(profile) for profile in profiles}
    ours = {profile.name: _simulator_fields(profile) for profile in simulated}
    for name in sorted(driver.keys() | ours.keys()):
        if name not in ours:
            yield f"{name}: only the driver has it"
        elif name not in driver:
            yield f"{name}: only the simulator has it"
        else:
            for field, value in driver[name].items():
                if value != ours[name][field]:
                    yield f"{name}: {field} {value} by the driver, {ours[name][field]} simulated"


def _driver_fields(profile: MigProfile) -> dict[str, Any]:
    return {
        "number": profile.number,
        "id": profile.id,
        "slices": profile.slices,
        "memory units": profile.size,
        "starts": list(profile.starts),
        "at most": profile.max_instances,
        "memory in MiB": profile.memory_bytes // MIB,
        "multiprocessors": profile.multiprocessors,
        "decoders": profile.engines.decoders,
        "encoders": profile.engines.encoders,
        "JPEG engines": profile.engines.jpeg,
        "OFA engines": profile.engines.ofa,
    }


def _simulator_fields(profile: GpuInstanceProfile) -> dict[str, Any]:
    return {
        "number": profile.enum,
        "id": profile.id,
        "slices": profile.slices,
        "memory units": profile.size,
        "starts": sorted(profile.starts),
        "at most": profile.max,
        "memory in MiB": profile.memory_mib,
        "multiprocessors": profile.multiprocessors,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "JPEG engines": profile.jpeg,
        "OFA engines": profile.ofa,
    }
