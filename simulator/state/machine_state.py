# SPDX-License-Identifier: Apache-2.0
"""State of a simulated machine at one moment; it lies in a file and outlives every process.

The machine's data stand in it unchanged, so the file explains itself; next to them
stands all that changes: MIG layouts, processes, clients, faults, events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from discovery.nvml_abi.c_values import Garbage
from simulator.description.machine_schema import (
    FabricSpec,
    Gpu,
    MachineDescription,
    Model,
    ResetSpec,
)

SCHEMA: Literal["gpuscape-simulation/1"] = "gpuscape-simulation/1"

DriverCondition = Literal["ok", "absent", "not-loaded", "mismatch"]
"""``absent``: no library; ``not-loaded``: no kernel module; ``mismatch``: of another version.

It shows when the library is loaded and when NVML is initialised; a session that is
open goes on, as the driver cannot be unloaded beneath it.
"""


Right = Literal["mig-monitor", "mig-access", "mig-config", "root", "pci-config"]
"""What a process may see: GPU instances (NVIDIA's capability ``mig/monitor``), the MIG devices that
there are (the ``access`` capabilities of their instances), all of PCI configuration space; and what
it may change: instances (capability ``mig/config``), the MIG mode (root)."""


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base: unknown keys are errors."""


class ComputeInstance(_Data, frozen=True, kw_only=True):
    """A compute instance within its GPU instance."""

    id: int
    start: int
    """First compute slice."""
    slices: int
    birth: int = 0
    """Tells instances of the same id apart: the handle of a destroyed one stays invalid."""


class GpuInstance(_Data, frozen=True, kw_only=True):
    """A GPU instance with its compute instances."""

    id: int
    profile: str
    """Name in the model's MIG table."""
    start: int
    """First memory unit."""
    compute: tuple[ComputeInstance, ...] = ()
    birth: int = 0
    """Tells instances of the same id apart, as ``ComputeInstance.birth`` does."""


class Readings(_Data, frozen=True, kw_only=True):
    """Readings of a GPU that a test fixes; None leaves a reading to the simulator."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    gpu_celsius: int | None = None
    memory_celsius: int | None = None
    power_milliwatts: int | None = None
    energy_millijoules: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None
    pcie_replays: int = 0
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    remapped_correctable: int = 0
    remapped_uncorrectable: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    retired_pages: tuple[int, ...] = ()
    """Addresses of pages taken out of service, before Ampere."""
    retired_pending: bool = False
    recovery_action: int = 0
    nvlink_received_kib: int | None = None
    """Over all links."""
    nvlink_sent_kib: int | None = None
    event_reasons: int | None = None
    """Bit mask of nvmlClocksEventReason*."""
    power_limit_milliwatts: int | None = None
    """Power limit that was set."""
    enforced_power_limit_milliwatts: int | None = None
    fan_percent: int | None = None
    performance_state: int | None = None
    margin_celsius: int | None = None
    fields: dict[int, int] = {}
    """Values that nvmlDeviceGetFieldValues is made to give, by field id, whatever the scope."""
    numbers: dict[str, int] = {}
    """Numbers that calls on a GPU are made to give, by C name, or by that and the arguments behind
    the device: ``nvmlDeviceGetMemoryErrorCounter(0,1,7)``. An entry point that the table does not
    have takes the device and gives an unsigned int."""
    field_type: int | None = None
    """NVML_VALUE_TYPE_* of everything that nvmlDeviceGetFieldValues says; None: the usual ones."""
    field_type_claimed: int | None = None
    """The type that is reported; None: the one it has."""


class RunningReset(_Data, frozen=True, kw_only=True):
    """A reset that has begun."""

    ends: float | None
    """Monotonic seconds; None: never."""
    result: Literal["done", "fails", "loses", "hangs"]
    """Result, as ``ResetSpec.result``."""


class SimulatedGpuState(_Data, frozen=True, kw_only=True, omit_defaults=True):
    """The part of one simulated GPU that changes: MIG layout, links, fixed readings."""

    listed: bool = True
    """False: it fell off the bus so far that NVML does not even count it."""
    mig: bool = False
    """The mode that holds."""
    mig_pending: bool = False
    """The mode that will hold after a reset."""
    instances: tuple[GpuInstance, ...] = ()
    births: int = 0
    """Instances made since the machine was described."""
    links_down: tuple[int, ...] = ()
    """Links that are down as this GPU sees them; the other end has its own list."""
    fabric: FabricSpec | None = None
    """None: as the machine says."""
    readings: Readings = Readings()
    spent_joules: float = 0.0
    """Energy used by processes that ended."""
    reset: RunningReset | None = None
    """None: it is not being reset."""
    minor: int | None = None
    """Minor number since a reset that changed it; None: as the machine says."""
    renumbered: int = 0
    """Resets that changed its numbers: handles from before are invalid."""
    resets: int = 0
    """Resets that succeeded since the machine was described; a load of the driver is one too."""


class SimulatedProcess(_Data, frozen=True, kw_only=True):
    """A process that uses a GPU, or one MIG device of it."""

    pid: int
    bus_id: str
    name: str = "python3"
    kind: Literal["compute", "graphics", "mps", "client"] = "compute"
    """``client``: it has the GPU open and no context there, as nvidia-persistenced and DCGM's
    nv-hostengine have; the driver lists no such process, and does not reset the GPU."""
    memory_mib: int = 512
    percent: int = 0
    """How busy it keeps the GPU."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    started: float = 0.0
    """Monotonic seconds."""
    ends: float | None = None
    """Monotonic seconds: it does not count from then on. None: until it is taken away."""
    ticks: int | None = None
    """It stands for the running process of this id that started so many clock ticks after boot,
    and ends with it. None: it is made up."""


class NvmlClient(_Data, frozen=True, kw_only=True):
    """A process that has NVML initialised."""

    pid: int
    started: int
    """Start of the process in clock ticks since boot, since process ids come again."""


class XidEvent(_Data, frozen=True, kw_only=True):
    """An XID that was not delivered yet."""

    bus_id: str
    code: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


# what a fault does


class _Action(_Data, frozen=True, kw_only=True, tag=True, tag_field="do"):
    """Base of the fault actions: the class name is the tag."""


class Return(_Action, frozen=True, kw_only=True):
    """End with this return code; with 15 on every call, the GPU is lost."""

    code: int


class Hang(_Action, frozen=True, kw_only=True):
    """Do not return before the fault is cleared."""

    uninterruptible: bool = False
    """SIGTERM does nothing meanwhile, as in an uninterruptible sleep of the kernel."""


class Delay(_Action, frozen=True, kw_only=True):
    """Take this much longer."""

    seconds: float


class Spoil(_Action, frozen=True, kw_only=True):
    """Answer with senseless values."""

    garbage: Garbage


class Crash(_Action, frozen=True, kw_only=True):
    """End the calling process."""

    ending: Literal["exit", "kill"] = msgspec.field(default="kill", name="by")
    """``exit``: as a library that calls _exit(70); ``kill``: SIGKILL, as from the OOM killer."""
    prints: str = ""
    """Written to standard error before, as libraries do."""


class Leak(_Action, frozen=True, kw_only=True):
    """Keep memory and descriptors that nobody gives back, in the calling process.

    Only where the simulator itself is in that process, not where the C library asks for it.
    """

    memory_bytes: int = 0
    descriptors: int = 0


Action = Return | Hang | Delay | Spoil | Crash | Leak


class Fault(_Data, frozen=True, kw_only=True):
    """A fault of calls: its effect, place and frequency."""

    id: int
    action: Action
    entry: str = "*"
    """Shell patterns on the C entry point's name, with blanks between them."""
    late: bool = False
    """It meets the call when its work is done: the caller does not learn that it went well."""
    bus_id: str | None = None
    """Only calls on this GPU, its MIG devices and instances; look-ups that lead to it too."""
    after: int = 0
    """This many matching calls go well first."""
    times: int | None = None
    """At most this many calls meet it; None: all."""
    seen: int = 0
    """Matching calls so far; kept only where ``after`` or ``times`` need it."""


class MachineState(_Data, frozen=True, kw_only=True):
    """State of a simulated machine: the content of its state file."""

    schema: Literal["gpuscape-simulation/1"] = SCHEMA
    name: str
    """The machine's name; GPUs without UUID and serial get theirs from it."""
    machine: MachineDescription | None = None
    """None: the answers come from a recording."""
    models: dict[str, Model] = {}
    """Models that the machine's GPUs name."""
    recording: str | None = None
    """Name of a file in the folder of this one."""
    driver: DriverCondition = "ok"
    started: float = 0.0
    """Monotonic seconds when the driver was loaded; counters start there."""
    gpus: dict[str, SimulatedGpuState] = {}
    """By bus id."""
    processes: tuple[SimulatedProcess, ...] = ()
    clients: tuple[NvmlClient, ...] = ()
    faults: tuple[Fault, ...] = ()
    events: tuple[XidEvent, ...] = ()
    reset: ResetSpec = ResetSpec()
    log_calls: bool = False
    lacking: tuple[Right, ...] = ()
    """Rights that processes on this machine do not have; by default they have all, as root."""
    missing: tuple[str, ...] = ()
    """Entry points that the driver's library does not have, as an older driver's."""


Edit = Callable[[MachineState], MachineState]
"""A change of the state; pure, since it may run on a newer state than its author saw."""


def initial(
    name: str, machine: MachineDescription, models: dict[str, Model], *, now: float
) -> MachineState:
    """The machine as its data describe it, with the driver just loaded."""
    used = {gpu.model: models[gpu.model] for gpu in machine.gpus}
    return MachineState(
        name=name,
        machine=machine,
        models=used,
        driver="ok" if machine.driver else "absent",
        started=now,
        reset=machine.reset,
        gpus={gpu.bus_id: _laid_out(gpu, used[gpu.model]) for gpu in machine.gpus},
    )


def current_minor(place: int, spec: Gpu, gpu: SimulatedGpuState) -> int:
    """Minor device number of the GPU at a place in the machine's list."""
    described = place if spec.minor is None else spec.minor
    return described if gpu.minor is None else gpu.minor


def minors(state: MachineState) -> dict[str, int]:
    """Bus id to minor number of all GPUs, in the machine's order."""
    gpus = state.machine.gpus if state.machine else ()
    return {
        gpu.bus_id: current_minor(place, gpu, state.gpus[gpu.bus_id])
        for place, gpu in enumerate(gpus)
    }


def _laid_out(gpu: Gpu, model: Model) -> SimulatedGpuState:
    slices = {profile.name: profile.slices for profile in model.mig}
    instances = tuple(
        GpuInstance(
            id=spec.id,
            profile=spec.profile,
            start=spec.start,
            compute=_compute(spec.compute or (slices[spec.profile],)),
        )
        for spec in gpu.instances
    )
    return SimulatedGpuState(
        listed=gpu.shown, mig=gpu.mig, mig_pending=gpu.mig, instances=instances
    )


def _compute(sizes: tuple[int, ...]) -> tuple[ComputeInstance, ...]:
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return tuple(
        ComputeInstance(id=number, start=start, slices=size)
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )
