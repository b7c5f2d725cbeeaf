# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's nvidia-mig-parted on a simulated machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from simulator.simulation import Simulation
from tests.foreign.foreign_programs import Foreign

Layout = tuple[bool, Counter[str]]
"""MIG mode, and how many devices there are of each profile."""


def by_index(document: Mapping[str, Any], simulation: Simulation) -> dict[int, Layout]:
    """GPU index to its layout, as nvidia-mig-parted reads what it has written."""
    found: dict[int, Layout] = {}
    for spec in document["mig-configs"]["current"]:
        for index in _indices(spec, simulation):
            assert index not in found
            found[index] = (spec["mig-enabled"], Counter(spec["mig-devices"]))
    return found


def exported_document(there: Foreign, programs: Path) -> dict[str, Any]:
    """What nvidia-mig-parted writes."""
    done = there.run(programs / "nvidia-mig-parted", "export", covered=("sys", "proc"))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = yaml.safe_load(done.stdout)
    return document


def in_full(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same file with what is optional, and filters as lists."""
    configs = {
        name: [
            {
                **entry,
                "device-filter": _listed(entry.get("device-filter", [])),
                "mig-devices": entry.get("mig-devices", {}),
            }
            for entry in entries
        ]
        for name, entries in document["mig-configs"].items()
    }
    return {**document, "mig-configs": configs}


def _listed(filters: str | list[str]) -> list[str]:
    return [filters] if isinstance(filters, str) else filters


def _indices(spec: Mapping[str, Any], simulation: Simulation) -> Iterator[int]:
    """The GPUs that an entry is about; a filter names models by their PCI ids."""
    wanted = {int(text, 16) for text in _listed(spec.get("device-filter", []))}
    state = simulation.state
    assert state.machine
    listed = [gpu for gpu in state.machine.gpus if state.gpus[gpu.bus_id].listed]
    for index, gpu in enumerate(sorted(listed, key=lambda it: it.bus_id)):
        if wanted and state.models[gpu.model].device_id not in wanted:
            continue
        if spec["devices"] == "all" or index in spec["devices"]:
            yield index
