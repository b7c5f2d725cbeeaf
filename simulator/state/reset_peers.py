# SPDX-License-Identifier: Apache-2.0
"""The GPUs that have to be reset in one command, since NVLinks join them. Pure.

Source: Fabric Manager user guide, "GPU VM System Reset Capabilities and Limitations"; for GPUs
before Ampere nvidia-smi(1), --gpu-reset.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

import pynvml

from simulator.description.machine_schema import MachineDescription
from simulator.state.machine_state import MachineState

_AMPERE: Final = int(pynvml.NVML_DEVICE_ARCH_AMPERE)
_HOPPER: Final = int(pynvml.NVML_DEVICE_ARCH_HOPPER)


def missing_peers(state: MachineState, bus_ids: AbstractSet[str]) -> frozenset[str]:
    """Bus ids of the GPUs that are not among these, and would have to be reset with them."""
    machine = state.machine
    if machine is None:
        return frozenset()
    models = {gpu.bus_id: state.models[gpu.model] for gpu in machine.gpus}
    needed: set[str] = set()
    for bus_id in bus_ids:
        architecture = models[bus_id].architecture
        without_manager = machine.switched and not _has_fabric_manager(state, machine)
        if architecture < _AMPERE or (without_manager and architecture < _HOPPER):
            needed |= _peers(machine, bus_id) if models[bus_id].nvlink_links else set()
    return frozenset(needed - bus_ids)


def _has_fabric_manager(state: MachineState, machine: MachineDescription) -> bool:
    configured = state.reset.fabric_manager
    return machine.switched if configured is None else configured


def _peers(machine: MachineDescription, bus_id: str) -> set[str]:
    """Bus ids of the GPUs at the other ends of its NVLinks, directly or through NVSwitches."""
    if machine.switched:
        return {gpu.bus_id for gpu in machine.gpus}
    pairs = [(machine.gpus[link.a].bus_id, machine.gpus[link.b].bus_id) for link in machine.direct]
    return {end for pair in pairs if bus_id in pair for end in pair}
