# SPDX-License-Identifier: Apache-2.0
"""What a device plugin sees of a simulated machine, without a trace on the machine.

It reads a copy: no client is counted, no scripted fault used up, and a fault that hangs or
ends its caller holds nobody up. It takes pynvml for that moment: whoever runs kubelets in a
process has no simulation installed in the same process.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from base.errors import Transient
from discovery.driver_errors import GpuLost
from discovery.host.pci import pci_gpus
from discovery.model import Driver, GpuSnapshot, GpuState, NodeSnapshot
from discovery.node_host import NodeHost
from discovery.nvml.calls import Handle
from discovery.nvml.facts import read_gpu
from discovery.nvml.session import close_session, open_gpu, open_session
from discovery.unread import unread_gpu
from simulator.simulation import Return, Simulation
from simulator.state.machine_state import MachineState
from simulator.state.state_file import StateFile
from tests import machines

_PYNVML = threading.Lock()
"""pynvml has one library at a time in a process."""


class Hardware:
    """One node's machine."""

    def __init__(self, simulation: Simulation, node: str) -> None:
        self._simulation = simulation
        self._node = node
        self._written = 0
        self._seen: MachineState | None = None

    def news(self) -> NodeSnapshot | None:
        """The machine as it is now; None where nothing about it changed since the last call."""
        written = self._simulation.state_file.stat().st_mtime_ns
        if written == self._written:
            return None
        steady = _steady(self._simulation.state)
        self._written = written
        if steady == self._seen:
            return None
        self._seen = steady
        return self._read(steady)

    def _read(self, state: MachineState) -> NodeSnapshot:
        with tempfile.TemporaryDirectory() as folder:
            here, there = Path(folder), self._simulation.state_file.parent
            for beside in (self._simulation.host_root.name, state.recording):
                if beside is not None:
                    (here / beside).symlink_to(there / beside)
            file = StateFile(here / "state.json")
            file.write(state)
            copy = Simulation(file)
            with _PYNVML, copy:
                gpus = tuple(_gpus(copy.host_root))
            return NodeHost(root=copy.host_root, name=self._node).snapshot(Driver(), gpus)


def _gpus(root: Path) -> Iterator[GpuSnapshot]:
    """What NVML tells of each GPU now; of none where no driver answers."""
    try:
        open_session()
    except Transient:
        return
    handles: dict[str, Handle] = {}
    try:
        for bus_id in pci_gpus(root).ours or machines.bus_ids_by_index():
            try:
                handle, _ = open_gpu(bus_id)
            except GpuLost:
                handle = None
            if handle is None:
                yield unread_gpu(bus_id, GpuState.LOST)
            else:
                yield read_gpu(bus_id, handle, handles)
    finally:
        close_session()


def _steady(state: MachineState) -> MachineState:
    """Without what comes and goes by the second, and with lasting faults alone."""
    lasting = (
        fault
        for fault in state.faults
        if isinstance(fault.action, Return) and fault.times is None and fault.seen >= fault.after
    )
    return replace(
        state,
        clients=(),
        events=(),
        processes=(),
        log_calls=False,
        faults=tuple(replace(fault, seen=0, after=0) for fault in lasting),
    )
