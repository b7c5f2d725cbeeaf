# SPDX-License-Identifier: Apache-2.0
"""A simulated node whose MIG layouts a worker changes: its GPUs, the truth in its state file, and a
journal next to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from actuator.worker_messages import ChangeRequest, Order
from discovery.mig_state import MigGpu
from discovery.nvml.mig_gpu import read_mig_gpu
from discovery.nvml.session import close_session, open_session
from discovery.reader.protocol import Start
from mig.gpu_layout import GpuLayout
from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Simulation
from tests import machines

A100 = "a100-sxm4-40gb"
H100 = "h100-sxm5-80gb"

FIVE = (
    MigInstanceSpec(profile="1g.5gb", start=0, id=7),
    MigInstanceSpec(profile="1g.5gb", start=1, id=8),
    MigInstanceSpec(profile="2g.10gb", start=2, id=4),
    MigInstanceSpec(profile="2g.10gb", start=4, id=5),
    MigInstanceSpec(profile="1g.5gb", start=6, id=13),
)
"""A full A100; ids are those of the driver's tree."""

Found = frozenset[tuple[str, int, int, tuple[tuple[int, int], ...]]]
"""Profile, start and birth of GPU instances, and slices and birth of what is in them: an instance
that was made anew at the same place has another birth."""


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A machine in a folder."""

    simulation: Simulation
    folder: Path

    @property
    def start(self) -> Start:
        """As a worker gets it."""
        return Start(
            host_root=str(self.simulation.host_root), simulation=str(self.simulation.state_file)
        )

    @property
    def journal(self) -> Path:
        """The actuator's folder."""
        return self.folder / "journal"

    def gpus(self) -> tuple[MigGpu, ...]:
        """What the driver reports; all of them must be readable."""
        with self.simulation:
            open_session()
            read = [read_mig_gpu(bus_id) for bus_id in self.simulation.state.gpus]
            close_session()
        return tuple(one for one in read if isinstance(one, MigGpu))

    def uuid(self, at: int = 0) -> str:
        """Of a GPU by its index."""
        return self.gpus()[at].uuid

    def found(self, at: int = 0) -> Found:
        """The instances of a GPU in the state file, whatever the driver's answers are."""
        gpu = self.simulation.state.gpus[machines.gpu(at).bus_id]
        return frozenset(
            (
                one.profile,
                one.start,
                one.birth,
                tuple((compute.slices, compute.birth) for compute in one.compute),
            )
            for one in gpu.instances
        )

    def request(self, layout: GpuLayout, *, at: int = 0, asked: str = "a test") -> ChangeRequest:
        """A layout for one GPU."""
        return ChangeRequest(desired={self.uuid(at): layout}, origin=asked)

    def order(self, request: ChangeRequest | None = None, *, seconds: float = 60) -> Order:
        """What a worker is to do here."""
        return Order(
            start=self.start, journal=str(self.journal), request=request, deadline_seconds=seconds
        )


def node(
    folder: Path,
    *instances: MigInstanceSpec,
    model: str = A100,
    count: int = 1,
    mig: bool = True,
) -> SimulatedNode:
    """GPUs of one model; the first one has the instances."""
    gpus = [
        machines.gpu(at, model=model, mig=mig, instances=instances if at == 0 else ())
        for at in range(count)
    ]
    made = machines.simulation(folder / "machine", *gpus, models=load_models())
    return SimulatedNode(made, folder)
