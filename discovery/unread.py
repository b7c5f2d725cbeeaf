# SPDX-License-Identifier: Apache-2.0
"""Values of which nothing was read: every reading is missing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from discovery.model import Gap, GpuSnapshot, GpuState, NvidiaFacts
from discovery.sample import GpuSample


def unread_fields(dataclass_type: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass that may be missing: ``()`` of lists, None of all others."""
    missing: dict[str, Any] = {}
    for field in fields(dataclass_type):
        if str(field.type).endswith("| None"):
            missing[field.name] = None
        elif str(field.type).startswith("tuple["):
            missing[field.name] = ()
    return missing


UNREAD_NVIDIA_FACTS = NvidiaFacts(**unread_fields(NvidiaFacts))
"""The facts of an NVIDIA GPU that gave none."""


def unread_gpu(bus_id: str, state: GpuState, *gaps: Gap) -> GpuSnapshot:
    """An NVIDIA GPU of which only the place on the bus is known."""
    known = {"bus_id": bus_id, "state": state, "nvidia": UNREAD_NVIDIA_FACTS, "gaps": gaps}
    return GpuSnapshot(**(unread_fields(GpuSnapshot) | known))


def unread_sample(bus_id: str) -> GpuSample:
    """A sample of a GPU that gave no reading."""
    return GpuSample(**(unread_fields(GpuSample) | {"bus_id": bus_id, "at_seconds": 0.0}))
