# SPDX-License-Identifier: Apache-2.0
"""The world of a change over the simulator's MIG state machine itself: no library, no file.

It refuses what the simulated driver refuses, and has nothing of the planner but the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pynvml
from msgspec.structs import replace as with_fields

from actuator.mig_world import StepFailed
from discovery.mig_state import ComputeProfile, CurrentCompute, CurrentInstance, MigGpu, MigProfile
from discovery.model import Mode
from discovery.nvml_abi.argument_kinds import Nvml
from mig.steps import CreateCompute, CreateInstance, DestroyCompute, DestroyInstance, MigStep
from mig.users.device_users import DeviceUsers
from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import GpuInstanceProfile
from simulator.state import mig_geometry, mig_instance_changes
from simulator.state.machine_state import GpuInstance, SimulatedGpuState
from tests.mig.grids import profiles

UUID = "GPU-0"


@dataclass
class StateMachineWorld:
    """One idle GPU of a model with MIG on."""

    model: str
    state: SimulatedGpuState = field(
        default_factory=lambda: SimulatedGpuState(mig=True, mig_pending=True)
    )
    names_places: bool = True
    """False: as a driver that makes compute instances only where it chooses."""
    taken: list[MigStep] = field(default_factory=list)
    reset_patience_seconds: float = 0.0
    unread: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the model once."""
        self._profiles = profiles(self.model)

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        """The GPU, as a driver reports it."""
        del gpus
        on = Mode(current=True, pending=True)
        return (
            MigGpu(
                index=0,
                uuid=UUID,
                bus_id="0000:01:00.0",
                model=self.model,
                device_id=0,
                subsystem_id=0,
                mode=on,
                profiles=tuple(map(self._described, self._profiles)),
                instances=tuple(map(self._instance, self.state.instances)),
            ),
        )

    def device_users(self) -> DeviceUsers:
        """Nobody."""
        return {}

    def perform(self, step: MigStep) -> None:
        """As a call of NVML would."""
        self.taken.append(step)
        try:
            self._take(step)
        except Nvml as error:
            raise StepFailed(str(pynvml.NVMLError(error.code))) from error

    def why_together(self) -> str:
        """It has no NVSwitches."""
        return ""

    def reset_by_smi(self, modes: Mapping[str, bool], note: Callable[[], None]) -> None:
        """It has no nvidia-smi."""
        raise StepFailed(f"{modes}: {note}")

    def leave_mode(self, gpu: str, *, on: bool) -> bool:
        """It has no boot."""
        raise StepFailed(f"{gpu}: {on}")

    def reopen(self) -> None:
        """Nothing is held open."""

    def pause(self, seconds: float) -> None:
        """Time passes at once."""

    def boot(self) -> str:
        """Always the same."""
        return "boot"

    def driver_load(self) -> str:
        """Always the same."""
        return "load"

    def now(self) -> str:
        """Always the same."""
        return "2026-11-27T10:00:00Z"

    def _take(self, step: MigStep) -> None:
        model, state = load_models()[self.model], self.state
        match step:
            case CreateInstance():
                profile = self._profile(step.profile)
                place = (step.start, step.size)
                made = mig_instance_changes.with_gpu_instance(model, state, profile.id, place)
                self.state, _ = made
            case DestroyInstance():
                self.state = mig_instance_changes.without_gpu_instance(state, self._by_id(step), ())
            case CreateCompute():
                holder = next(one for one in state.instances if one.start == step.start)
                number = mig_geometry.compute_profile_id(step.slices)
                place_in = None if step.first < 0 else (step.first, step.slices)
                self.state, _ = mig_instance_changes.with_compute_instance(
                    model, state, holder, number, place_in
                )
            case DestroyCompute():
                holder = self._by_id(step)
                gone = next(one for one in holder.compute if one.id == step.compute)
                self.state = mig_instance_changes.without_compute_instance(state, holder, gone, ())
            case _:
                raise AssertionError(step)

    def _profile(self, name: str) -> GpuInstanceProfile:
        return next(one for one in load_models()[self.model].mig if one.name == name)

    def _by_id(self, step: DestroyInstance | DestroyCompute) -> GpuInstance:
        return next(one for one in self.state.instances if one.id == step.instance)

    def _described(self, profile: MigProfile) -> MigProfile:
        """With its compute instance profiles where an instance of it is there to ask."""
        if all(one.profile != profile.name for one in self.state.instances):
            return profile
        described = self._profile(profile.name)
        found = []
        for number in mig_geometry.COMPUTE_PROFILES:
            slices = mig_geometry.compute_slices(described, number)
            if slices is not None:
                starts = mig_geometry.compute_starts(described, slices)
                found.append(
                    ComputeProfile(
                        slices=slices, id=number, starts=starts if self.names_places else ()
                    )
                )
        return replace(profile, compute=tuple(sorted(found, key=lambda one: one.slices)))

    def _instance(self, one: GpuInstance) -> CurrentInstance:
        return CurrentInstance(
            id=one.id,
            profile=one.profile,
            start=one.start,
            size=self._profile(one.profile).size,
            compute=tuple(
                CurrentCompute(id=part.id, slices=part.slices, start=part.start, uuid=None)
                for part in one.compute
            ),
        )


def with_compute(state: SimulatedGpuState, at: int, *compute: object) -> SimulatedGpuState:
    """The GPU with these compute instances in its GPU instance at a memory unit."""
    instances = tuple(
        with_fields(one, compute=compute) if one.start == at else one for one in state.instances
    )
    return with_fields(state, instances=instances)
