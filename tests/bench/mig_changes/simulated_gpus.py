# SPDX-License-Identifier: Apache-2.0
"""Simulated GPUs that are put into a state, changed by whatever arm, and looked at afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from simulator.answers.change_answers import CHANGES
from simulator.simulation import Simulation
from simulator.state import mig_geometry
from simulator.state.edits import with_gpu_changed
from simulator.state.machine_state import ComputeInstance, GpuInstance, SimulatedGpuState
from tests.bench.mig_changes.gpu_start import Desired, GpuStart, InstanceStart

_FIRST_PID = 900_000
_MARK = 77
"""PCIe replays of each GPU at the start; a reset makes them zero, whoever resets it."""


class SimulatedGpus:
    """All GPUs of a simulated machine; the state file is the truth about them."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        machine = simulation.state.machine
        assert machine is not None
        self.bus_ids = tuple(gpu.bus_id for gpu in machine.gpus)
        """In the order of their indices."""
        self._models = {gpu.bus_id: simulation.state.models[gpu.model] for gpu in machine.gpus}
        self._pids: dict[int, str] = {}
        self._births: dict[str, int] = {}
        """Bus id to the last birth of the start."""
        self._first: dict[str, tuple[GpuInstance, ...]] = {}

    def put(self, starts: Sequence[GpuStart]) -> None:
        """Into the state that a change begins with; the log of calls begins anew."""
        self.end(self._pids)
        for bus_id, start in zip(self.bus_ids, starts, strict=True):
            self._put(bus_id, start)
        self.simulation.log_calls()

    def _put(self, bus_id: str, start: GpuStart) -> None:
        births = iter(range(1, 1000))
        made = tuple(self._instance(bus_id, its, births) for its in start.instances)
        self._births[bus_id] = next(births)
        self._first[bus_id] = made
        self.simulation.edit(
            with_gpu_changed(
                bus_id,
                mig=start.mig,
                mig_pending=start.mig,
                instances=made,
                births=self._births[bus_id],
            )
        )
        self.simulation.set_readings(bus_id, pcie_replays=_MARK)
        for its, instance in zip(start.instances, made, strict=True):
            for number in sorted(its.busy):
                ids = {"gpu_instance_id": instance.id, "compute_instance_id": number}
                self.simulation.add_process(bus_id, self._new_pid(bus_id), **ids)
        if start.busy:
            self.simulation.add_process(bus_id, self._new_pid(bus_id))

    def _new_pid(self, bus_id: str) -> int:
        pid = 1 + max(self._pids, default=_FIRST_PID)
        self._pids[pid] = bus_id
        return pid

    def _instance(self, bus_id: str, its: InstanceStart, births: Iterable[int]) -> GpuInstance:
        model, number = self._models[bus_id], iter(births)
        profile = next(profile for profile in model.mig if profile.name == its.profile)
        return GpuInstance(
            id=mig_geometry.instance_id(model, profile, its.start),
            profile=its.profile,
            start=its.start,
            compute=tuple(
                ComputeInstance(id=at, start=first, slices=slices, birth=next(number))
                for at, (first, slices) in enumerate(its.compute)
            ),
            birth=next(number),
        )

    def pids(self, gpus: Collection[int] = ()) -> tuple[int, ...]:
        """Programs on the GPUs of these indices, or on all of them."""
        where = {self.bus_ids[index] for index in gpus or range(len(self.bus_ids))}
        return tuple(pid for pid, bus_id in self._pids.items() if bus_id in where)

    def end(self, pids: Iterable[int]) -> int:
        """End these programs; how many of them there were."""
        ended = [pid for pid in pids if pid in self._pids]
        for pid in ended:
            del self._pids[pid]
            self.simulation.remove_process(pid)
        return len(ended)

    def _now(self) -> dict[str, SimulatedGpuState]:
        return self.simulation.state.gpus

    def layout(self) -> object:
        """All that a change could have changed, and each instance known again."""
        return {
            bus_id: (gpu.mig, gpu.mig_pending, frozenset(gpu.instances))
            for bus_id, gpu in self._now().items()
        }

    def destroyed(self, others_than: Collection[int] = ()) -> tuple[int, int]:
        """GPU instances and compute instances from the start that are gone.

        ``others_than``: GPUs that do not count, by index.
        """
        now, gone, parts = self._now(), 0, 0
        for index, bus_id in enumerate(self.bus_ids):
            if index not in others_than:
                old = [one for one in now[bus_id].instances if one.birth < self._births[bus_id]]
                kept = {part.birth for one in now[bus_id].instances for part in one.compute}
                gone += len(self._first[bus_id]) - len(old)
                first = [part.birth for one in self._first[bus_id] for part in one.compute]
                parts += sum(birth not in kept for birth in first)
        return gone, parts

    def beside(self) -> int:
        """Compute instances from the start that are gone while a program runs on a sibling."""
        now, found = self._now(), 0
        used = {
            (process.bus_id, process.gpu_instance_id) for process in self.simulation.state.processes
        }
        for bus_id, first in self._first.items():
            left = {one.birth: one for one in now[bus_id].instances}
            for one in first:
                if one.birth in left and (bus_id, one.id) in used:
                    kept = {part.birth for part in left[one.birth].compute}
                    found += sum(part.birth not in kept for part in one.compute)
        return found

    def was_reset(self) -> frozenset[int]:
        """Indices of the GPUs that were reset since the start."""
        now = self._now()
        return frozenset(
            index
            for index, bus_id in enumerate(self.bus_ids)
            if now[bus_id].readings.pcie_replays != _MARK
        )

    def waiting(self) -> int:
        """GPUs with a mode that the next reset or boot brings."""
        return sum(gpu.mig != gpu.mig_pending for gpu in self._now().values())

    def has(self, desired: Desired) -> bool:
        """Whether the GPUs have these modes and devices, and nothing waits there."""
        now = self._now()
        return all(
            self._has(self.bus_ids[index], now[self.bus_ids[index]], devices)
            for index, devices in desired.items()
        )

    def _has(self, bus_id: str, gpu: SimulatedGpuState, devices: Counter[str] | None) -> bool:
        if (gpu.mig, gpu.mig_pending) != (devices is not None,) * 2:
            return False
        there: Counter[str] = Counter()
        for one in gpu.instances:
            slices = mig_geometry.profile_of(self._models[bus_id], one).slices
            there.update(
                one.profile if part.slices == slices else f"{part.slices}c.{one.profile}"
                for part in one.compute
            )
        return all(one.compute for one in gpu.instances) and there == (devices or Counter())

    def changing_calls(self) -> int:
        """Calls of NVML since the start that are made to change something."""
        calls = self.simulation.calls()
        return sum(count for (name, _), count in calls.items() if name in CHANGES)

    def all_calls(self) -> int:
        """Calls of NVML since the start, whatever for."""
        return self.simulation.calls().total()

    def within(self, change: Callable[[], bool]) -> bool:
        """Do something by pynvml in this process."""
        with self.simulation:
            return change()
