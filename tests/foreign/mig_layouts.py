# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's nvidia-mig-parted on a simulated machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from discovery.simulator.simulation import Simulation
from tests.foreign.foreign_programs import Foreign

Layout = tuple[bool, Counter[str]]
"""MIG mode, and how many devices there are of each profile."""


def exported(there: Foreign, programs: Path) -> dict[int, Layout]:
    """GPU index to its layout, as nvidia-mig-parted writes it."""
    done = there.run(programs / "nvidia-mig-parted", "export", covered=("sys", "proc"))
    assert done.returncode == 0, done.stderr
    found: dict[int, Layout] = {}
    for spec in yaml.safe_load(done.stdout)["mig-configs"]["current"]:
        for index in _indices(spec, there.simulation):
            assert index not in found
            found[index] = (spec["mig-enabled"], Counter(spec["mig-devices"]))
    return found


def _indices(spec: Mapping[str, Any], simulation: Simulation) -> Iterator[int]:
    """The GPUs that an entry is about; a filter names models by their PCI ids."""
    filters = spec.get("device-filter", [])
    wanted = {int(text, 16) for text in ([filters] if isinstance(filters, str) else filters)}
    state = simulation.state
    assert state.machine
    listed = [gpu for gpu in state.machine.gpus if state.gpus[gpu.bus_id].listed]
    for index, gpu in enumerate(sorted(listed, key=lambda it: it.bus_id)):
        if wanted and state.models[gpu.model].device_id not in wanted:
            continue
        if spec["devices"] == "all" or index in spec["devices"]:
            yield index
