# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a real node: a simulated machine that its containers reach as they reach a driver.

``gpuscape simulate serve`` runs on the node, and its runtime ``nvidia`` gives the library to the
containers that ask (:mod:`tests.node.injecting_runtime`). So the agent and NVIDIA's own device
plugin, each in a container and unchanged, use one and the same machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from simulator.clibrary.compiler import place_library
from simulator.clibrary.served_machine import LIBRARY_FOLDER
from simulator.description.machine_schema import MachineDescription
from simulator.simulation import Simulation
from tests.agent.agent_process import GPUSCAPE
from tests.node.machine import DISK
from tests.node.real_node import GPUS, SOON, RealNode

FABRIC_MANAGER: Final = "nv-fabricmanager"
DRIVER: Final = "driver"
"""The program that serves the machine, and its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """A machine that is served on a node, until the node ends."""

    node: RealNode
    simulation: Simulation
    """The same machine, to look at and to disturb from outside."""

    @classmethod
    def serve(cls, node: RealNode, machine: MachineDescription | str) -> Self:
        """Put a machine's GPUs into a node, before a pod there asks for them.

        Raises BadInput and ProgramError.
        """
        folder = node.folder / DISK / GPUS.name
        simulation = Simulation.create(machine, folder)
        # the container's cgroups are mounted there, below a file system that is read-only
        (simulation.host_root / "sys/fs/cgroup").mkdir(parents=True)
        place_library(simulation.host_root / LIBRARY_FOLDER)  # the node cannot build it
        gpus = cls(node=node, simulation=simulation)
        gpus.start()
        return gpus

    def start(self) -> None:
        """Serve it; again, where that was stopped."""
        state = GPUS / self.simulation.state_file.name
        log = self.node.programs.log(DRIVER)
        before = log.stat().st_size if log.exists() else 0
        self.node.programs.start(DRIVER, [GPUSCAPE, "simulate", "serve", state, "-o", "json"])
        self.node.programs.wait(DRIVER, lambda: log.stat().st_size > before, seconds=SOON)

    def start_fabric_manager(self) -> None:
        """Run a program of Fabric Manager's name, which the node's processes show; it does
        nothing."""
        program = self.node.folder / FABRIC_MANAGER
        program.symlink_to("/bin/sleep")
        self.node.programs.start(FABRIC_MANAGER, [program, "infinity"])
