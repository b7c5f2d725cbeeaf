# SPDX-License-Identifier: Apache-2.0
"""What a driver offers, next to what gpuscape has of the model without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from discovery.mig_state import MigGpu, MigProfile
from discovery.simulator.description.machine_catalog import load_models
from discovery.simulator.description.machine_schema import GpuInstanceProfile
from mig.configs.known_mig_models import counts_are_wrong, known_family

MIB: Final = 1 << 20

TABLE: Final = "known_mig_models.py"
"""Names and counts by PCI id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferComparison:
    """Differences between a driver and one source."""

    source: str
    """What it is compared with."""
    known: bool
    """The source has this model."""
    differences: tuple[str, ...] = ()


def compared(gpu: MigGpu, profiles: Sequence[MigProfile]) -> tuple[OfferComparison, ...]:
    """With the table of known models, and with the simulator's model of the same PCI id.

    Of several models with the same id the one with the fewest differences is taken.
    """
    return _with_table(gpu, profiles), _with_simulator(gpu, profiles)


def _with_table(gpu: MigGpu, profiles: Sequence[MigProfile]) -> OfferComparison:
    family = known_family(gpu.device_id)
    if family is None:
        return OfferComparison(source=TABLE, known=False)
    most = {one.name: one.most for one in profiles}
    found = [f"{name}: only the driver has it" for name in most.keys() - family.most.keys()]
    found += [f"{name}: only the table has it" for name in family.most.keys() - most.keys()]
    if not counts_are_wrong(gpu.device_id):
        found += [
            f"{name}: at most {count} by the driver, {family.most[name]} by the table"
            for name, count in most.items()
            if family.most.get(name, count) != count
        ]
    return OfferComparison(source=TABLE, known=True, differences=tuple(sorted(found)))


def _with_simulator(gpu: MigGpu, profiles: Sequence[MigProfile]) -> OfferComparison:
    found = [
        OfferComparison(
            source=f"simulated {name}",
            known=True,
            differences=tuple(_differences(profiles, model.mig)),
        )
        for name, model in sorted(load_models().items())
        if model.mig and model.device_id == gpu.device_id
    ]
    if not found:
        return OfferComparison(source="simulator", known=False)
    return min(found, key=lambda one: len(one.differences))


def _differences(
    profiles: Sequence[MigProfile], simulated: Sequence[GpuInstanceProfile]
) -> Iterator[str]:
    driver = {one.name: _of_driver(one) for one in profiles}
    ours = {one.name: _of_simulator(one) for one in simulated}
    for name in sorted(driver.keys() | ours.keys()):
        if name not in ours:
            yield f"{name}: only the driver has it"
        elif name not in driver:
            yield f"{name}: only the simulator has it"
        else:
            for what, value in driver[name].items():
                if value != ours[name][what]:
                    yield f"{name}: {what} {value} by the driver, {ours[name][what]} simulated"


def _of_driver(one: MigProfile) -> dict[str, Any]:
    return {
        "number": one.number,
        "id": one.id,
        "slices": one.slices,
        "memory units": one.size,
        "starts": list(one.starts),
        "at most": one.most,
        "memory in MiB": one.memory_bytes // MIB,
        "multiprocessors": one.multiprocessors,
        "decoders": one.engines.decoders,
        "encoders": one.engines.encoders,
        "JPEG engines": one.engines.jpeg,
        "OFA engines": one.engines.ofa,
    }


def _of_simulator(one: GpuInstanceProfile) -> dict[str, Any]:
    return {
        "number": one.enum,
        "id": one.id,
        "slices": one.slices,
        "memory units": one.size,
        "starts": sorted(one.starts),
        "at most": one.max,
        "memory in MiB": one.memory_mib,
        "multiprocessors": one.multiprocessors,
        "decoders": one.decoders,
        "encoders": one.encoders,
        "JPEG engines": one.jpeg,
        "OFA engines": one.ofa,
    }
