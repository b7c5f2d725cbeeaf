# SPDX-License-Identifier: Apache-2.0
"""A state of a simulated machine, as its GPUs' answers need it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import NAMESPACE_URL, uuid5

import pynvml

from discovery.bus_id import bus_order
from discovery.nvml_abi.argument_kinds import Nvml
from simulator.description.machine_schema import (
    DirectLinks,
    Gpu,
    GpuInstanceProfile,
    MachineDescription,
    Model,
)
from simulator.driver import clients
from simulator.driver.handles import DeviceHandle
from simulator.state import gpu_reset, mig_geometry
from simulator.state.machine_state import (
    ComputeInstance,
    GpuInstance,
    MachineState,
    SimulatedGpuState,
    SimulatedProcess,
    current_minor,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """A simulated GPU in one state of its machine: place, model and current state."""

    place: int
    """Index in the machine's list."""
    spec: Gpu
    model: Model
    state: SimulatedGpuState
    uuid: str
    serial: str
    view: MachineView
    """The machine it is part of."""

    @property
    def minor(self) -> int:
        """Its minor device number."""
        return current_minor(self.place, self.spec, self.state)

    @property
    def handle(self) -> DeviceHandle:
        """The handle that NVML gives out for it now."""
        return DeviceHandle(self.spec.bus_id, renumbered=self.state.renumbered)

    @property
    def processes(self) -> tuple[SimulatedProcess, ...]:
        """The processes with a context on it or on its MIG devices that have not ended."""
        return tuple(process for process in self._openers if process.kind != "client")

    @property
    def clients(self) -> tuple[SimulatedProcess, ...]:
        """The processes that have it open without a context, and have not ended."""
        return tuple(process for process in self._openers if process.kind == "client")

    @property
    def _openers(self) -> tuple[SimulatedProcess, ...]:
        mine = (p for p in self.view.state.processes if p.bus_id == self.spec.bus_id)
        return tuple(process for process in mine if clients.is_running(process, self.view.now))


class MachineView:
    """A machine in one state, which never changes; only its clock goes on."""

    def __init__(
        self, state: MachineState, machine: MachineDescription, clock: Callable[[], float]
    ) -> None:
        self.state = state
        self.machine = machine
        self._clock = clock

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock()

    @cached_property
    def gpus(self) -> tuple[SimulatedGpu, ...]:
        """The GPUs that NVML counts, in PCI bus order: NVML's indices."""
        listed = (gpu for gpu in self._all.values() if gpu.state.listed)
        return tuple(sorted(listed, key=lambda gpu: bus_order(gpu.spec.bus_id)))

    @cached_property
    def excluded(self) -> tuple[SimulatedGpu, ...]:
        """The GPUs that the driver is configured to leave alone."""
        return tuple(gpu for gpu in self._all.values() if gpu.spec.excluded)

    def gpu(self, device: DeviceHandle) -> SimulatedGpu:
        """The GPU of a handle.

        Raises Nvml: GPU_IS_LOST where it is not counted any more or is being reset,
        INVALID_ARGUMENT for a handle from before a reset that changed its numbers.
        """
        gpu = self.gpu_of_instance(device.bus_id)
        if not device.is_mig and device.renumbered != gpu.state.renumbered:
            raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return gpu

    def gpu_of_instance(self, bus_id: str) -> SimulatedGpu:
        """The GPU that a handle of an instance is about. Raises Nvml: GPU_IS_LOST, as above."""
        gpu = self._all[bus_id]
        if not gpu.state.listed or gpu.state.reset is not None:
            raise Nvml(gpu_reset.LOST)
        return gpu

    def mig_device(
        self, device: DeviceHandle
    ) -> tuple[GpuInstanceProfile, GpuInstance, ComputeInstance]:
        """Profile and instances that a MIG device's handle stands for.

        Raises Nvml: INVALID_ARGUMENT for a GPU's handle and for instances that are gone.
        """
        gpu = self.gpu(device)
        for instance, compute in mig_geometry.mig_devices(gpu.state):
            ids = (instance.id, compute.id, compute.birth)
            if ids == (device.gpu_instance_id, device.compute_instance_id, device.birth):
                return mig_geometry.profile_of(gpu.model, instance), instance, compute
        raise Nvml(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def gpu_at(self, place: int) -> SimulatedGpu:
        """The GPU at a place in the machine's list, counted or not."""
        return self._all[self.machine.gpus[place].bus_id]

    @cached_property
    def link_ends(self) -> tuple[tuple[LinkEnd | None, ...], ...]:
        """Far end of each NVLink, by the GPU's place in the machine's list and by link."""
        counts = [self.gpu_at(place).model.nvlink_links for place in range(len(self.machine.gpus))]
        return _link_ends(counts, self.machine.direct, switched=self.machine.switched)

    @cached_property
    def _all(self) -> dict[str, SimulatedGpu]:
        return {spec.bus_id: self._gpu(n, spec) for n, spec in enumerate(self.machine.gpus)}

    def _gpu(self, place: int, spec: Gpu) -> SimulatedGpu:
        made_up = uuid5(NAMESPACE_URL, f"gpuscape:{self.state.name}/{spec.bus_id}")
        return SimulatedGpu(
            place=place,
            spec=spec,
            model=self.state.models[spec.model],
            state=self.state.gpus[spec.bus_id],
            uuid=spec.uuid or f"GPU-{made_up}",
            serial=spec.serial or f"13{made_up.int % 10**11:011d}",
            view=self,
        )


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The far end of one link: a GPU's place in the machine's list, or None for a switch."""

    place: int | None = None


def _link_ends(
    counts: Sequence[int], direct: Sequence[DirectLinks], *, switched: bool
) -> tuple[tuple[LinkEnd | None, ...], ...]:
    """Far end of each NVLink, by GPU and link; None where it goes nowhere.

    ``counts`` are the links each GPU has. Direct links take the lowest free
    numbers at both ends, in the order they are listed.
    """
    if switched:
        return tuple((LinkEnd(),) * count for count in counts)
    used: list[list[LinkEnd]] = [[] for _ in counts]
    for pair in direct:
        used[pair.a] += [LinkEnd(pair.b)] * pair.links
        used[pair.b] += [LinkEnd(pair.a)] * pair.links
    return tuple(
        (*ends, *(None,) * (count - len(ends))) for ends, count in zip(used, counts, strict=True)
    )
