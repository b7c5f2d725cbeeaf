# SPDX-License-Identifier: Apache-2.0
"""One simulated GPU that is put into a state, changed by whatever arm, and looked at afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from simulator.answers.change_answers import CHANGES
from simulator.description.machine_schema import Model
from simulator.simulation import Simulation
from simulator.state import mig_geometry
from simulator.state.edits import with_gpu_changed
from simulator.state.machine_state import ComputeInstance, GpuInstance
from tests.bench.mig_changes.published_places import Placed
from tests.bench.mig_changes.transitions import Transition

_FIRST_PID = 900_000


class SimulatedGpu:
    """The only GPU of a simulated machine; the state file is the truth about it."""

    def __init__(self, simulation: Simulation, model: Model) -> None:
        self.simulation = simulation
        [self.bus_id] = simulation.state.gpus
        self._model = model
        self._pids: dict[int, Placed] = {}
        self._last_birth = 0

    def put(self, start: Transition) -> None:
        """Into the state that a transition begins with; the log of calls begins anew."""
        self.end(self.pids)
        made = [self._instance(one, start, at) for at, one in enumerate(start.there, start=1)]
        self._last_birth = 2 * len(made)
        self.simulation.edit(
            with_gpu_changed(
                self.bus_id,
                mig=True,
                mig_pending=True,
                instances=tuple(made),
                births=self._last_birth,
            )
        )
        for at, one in enumerate(made):
            place = (one.profile, one.start)
            if place in start.busy:
                pid = _FIRST_PID + at
                self._pids[pid] = place
                self.simulation.add_process(
                    self.bus_id, pid, gpu_instance_id=one.id, compute_instance_id=0
                )
        self.simulation.log_calls()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the programs on it."""
        return tuple(self._pids)

    def end(self, pids: Iterable[int]) -> int:
        """End these programs; how many of them there were."""
        ended = [pid for pid in pids if pid in self._pids]
        for pid in ended:
            del self._pids[pid]
            self.simulation.remove_process(pid)
        return len(ended)

    def births(self) -> frozenset[int]:
        """What tells every instance, GPU and compute, from any other one there ever was."""
        found = self.simulation.state.gpus[self.bus_id].instances
        return frozenset(one.birth for one in found) | {
            compute.birth for one in found for compute in one.compute
        }

    def kept(self) -> int:
        """How many of the GPU instances from the start are still there."""
        found = self.simulation.state.gpus[self.bus_id].instances
        return sum(1 for one in found if one.birth <= self._last_birth)

    def has(self, wanted: Counter[str]) -> bool:
        """Whether it has these instances, each with its whole compute instance, and no other."""
        found = self.simulation.state.gpus[self.bus_id].instances
        whole = all(
            [one.slices for one in each.compute]
            == [mig_geometry.profile_of(self._model, each).slices]
            for each in found
        )
        return whole and Counter(one.profile for one in found) == wanted

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

    def _instance(self, place: Placed, start: Transition, number: int) -> GpuInstance:
        name, at = place
        profile = next(one for one in self._model.mig if one.name == name)
        compute = ComputeInstance(id=0, start=0, slices=profile.slices, birth=2 * number)
        return GpuInstance(
            id=mig_geometry.instance_id(self._model, profile, at),
            profile=name,
            start=at,
            compute=() if place in start.hollow else (compute,),
            birth=2 * number - 1,
        )
