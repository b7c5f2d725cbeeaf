# SPDX-License-Identifier: Apache-2.0
"""A whole node brought to a configuration without a plan, as nvidia-mig-parted does it.

A few lines over pynvml that have its bugs; the program itself shows that they are its bugs.
Source: mig-parted v0.10.0, cmd/nvidia-mig-parted and pkg.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pynvml
import yaml

from discovery.mig_state import MigGpu
from discovery.nvml.mig_gpu import read_mig_gpu
from discovery.nvml.session import close_session, open_session
from simulator.simulation import Simulation
from tests import machines
from tests.bench.mig_changes.wipe_and_permute import devices, wipe, wipe_and_permute

Spec = Mapping[str, Any]
Chosen = tuple[MigGpu, Spec]
"""A GPU and the entry that matches it."""


def naive_apply(simulation: Simulation, text: str) -> bool:
    """Apply the only configuration of a file; whether it says that this succeeded."""
    with simulation:
        open_session()
        try:
            if not all(_mode(gpu) == spec["mig-enabled"] for gpu, spec in _chosen(text)):
                waiting = [_switched(gpu, spec["mig-enabled"]) for gpu, spec in _chosen(text)]
            else:
                waiting = []
        finally:
            close_session()
        if any(waiting):
            for bus_id in simulation.state.gpus:
                simulation.reset_gpu(bus_id)
        open_session()
        try:
            return all(
                wipe_and_permute(gpu.bus_id, spec.get("mig-devices", {}))
                for gpu, spec in _chosen(text)
                if spec["mig-enabled"]
            )
        finally:
            close_session()


def naive_assert(simulation: Simulation, text: str) -> bool:
    """Whether the node is as the file has it: every GPU has to be in it, with these counts."""
    with simulation:
        open_session()
        try:
            chosen = {gpu.bus_id: (gpu, spec) for gpu, spec in _chosen(text)}
            return len(chosen) == len(machines.bus_ids_by_index()) and all(
                _mode(gpu) == spec["mig-enabled"]
                and dict(devices(gpu)) == dict(spec.get("mig-devices", {}))
                for gpu, spec in chosen.values()
            )
        finally:
            close_session()


def _chosen(text: str) -> Iterator[Chosen]:
    """Every GPU with each entry that matches it. A filter that is no number matches nothing."""
    [specs] = yaml.safe_load(text)["mig-configs"].values()
    for spec in specs:
        for index, bus_id in enumerate(machines.bus_ids_by_index()):
            gpu = read_mig_gpu(bus_id)
            assert isinstance(gpu, MigGpu), gpu
            listed = spec["devices"] == "all" or index in spec["devices"]
            if listed and _matches(spec.get("device-filter"), gpu):
                yield gpu, spec


def _matches(wanted: str | None, gpu: MigGpu) -> bool:
    try:
        return wanted is None or int(wanted, 0) == gpu.device_id
    except ValueError:
        return False


def _mode(gpu: MigGpu) -> bool:
    return gpu.mode is not None and gpu.mode.current


def _switched(gpu: MigGpu, on: bool) -> bool:
    """Clear a GPU and ask for the mode; whether that waits for a reset."""
    device = pynvml.nvmlDeviceGetHandleByPciBusId(gpu.bus_id.encode())
    if _mode(gpu):
        wipe(device, gpu)
    pynvml.nvmlDeviceSetMigMode(device, int(on))
    current, pending = pynvml.nvmlDeviceGetMigMode(device)
    return bool(current != pending)


def counted_devices(simulation: Simulation) -> tuple[Counter[str], ...]:
    """The MIG devices of each GPU, by index."""
    with simulation:
        open_session()
        try:
            read = [read_mig_gpu(bus_id) for bus_id in machines.bus_ids_by_index()]
        finally:
            close_session()
    return tuple(devices(gpu) for gpu in read if isinstance(gpu, MigGpu))
