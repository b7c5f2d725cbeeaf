# SPDX-License-Identifier: Apache-2.0
"""The places of simulated models, as the planner gets them from NVML."""

from __future__ import annotations

from discovery.mig_state import MigEngines, MigProfile
from mig.placement import Grid
from simulator.description.machine_catalog import load_models

MIB = 1 << 20


def profiles(model: str) -> tuple[MigProfile, ...]:
    """The GPU instance profiles of a model of the simulator."""
    return tuple(
        MigProfile(
            number=one.enum,
            id=one.id,
            name=one.name,
            slices=one.slices,
            size=one.size,
            starts=one.starts,
            max_instances=one.max,
            memory_bytes=one.memory_mib * MIB,
            multiprocessors=one.multiprocessors,
            engines=MigEngines(
                decoders=one.decoders, encoders=one.encoders, jpeg=one.jpeg, ofa=one.ofa
            ),
        )
        for one in sorted(load_models()[model].mig, key=lambda one: one.enum)
    )


def grid(model: str) -> Grid:
    """The places of a model."""
    return Grid(profiles(model))
