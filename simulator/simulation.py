# SPDX-License-Identifier: Apache-2.0
"""Simulated machines for tests, demos and ``--simulate``: make, open, install, disturb."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from base.errors import BadInput
from base.files import read_bytes
from simulator import recording_file
from simulator.computed_machine import ComputedMachine
from simulator.description import machine_catalog
from simulator.description.document import MOST_BYTES, schema_in, spelling_hint
from simulator.description.machine_schema import MachineDescription, Model
from simulator.driver import clients
from simulator.driver.calling_process import CallingProcess
from simulator.driver.library import Library, put_under_pynvml
from simulator.driver.simulated_driver import Answers, SimulatedDriver
from simulator.host import mig_capabilities, simulated_host
from simulator.recorded_machine import RecordedMachine
from simulator.recording_file import Recording
from simulator.state import edits, gpu_reset
from simulator.state.machine_state import (
    SCHEMA,
    Action,
    Crash,
    Delay,
    DriverCondition,
    Edit,
    Hang,
    Leak,
    MachineState,
    Return,
    Right,
    SimulatedProcess,
    Spoil,
    XidEvent,
    initial,
)
from simulator.state.state_file import StateFile

__all__ = ["Simulation", "simulate", "Return", "Hang", "Delay", "Spoil", "Crash", "Leak"]

_STATE_FILE = "state.json"
_HOST_ROOT = "root"
_RECORDING_FILE = "recording.json"


class Simulation:
    """A simulated machine: its state file, and the host tree next to it.

    Any number of these, in any number of processes, may stand for the same file.
    As a context manager it is installed within.
    """

    _installed: ClassVar[Simulation | None] = None

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self.clock: Callable[[], float] = lambda: time.monotonic()
        """Monotonic seconds of the machine; a test may set another one, before it is installed."""
        self._driver: SimulatedDriver | None = None

    @classmethod
    def create(
        cls,
        machine: MachineDescription | str,
        directory: Path,
        *,
        models: Mapping[str, Model] | None = None,
        name: str = "custom",
    ) -> Self:
        """Write state and host tree of a machine, or of the one with this name, and open it.

        Raises BadInput for an unknown name, and for a host tree that is not ours to replace.
        """
        if isinstance(machine, str):
            name, machine = machine, machine_catalog.load_machine(machine)
        models = machine.known_models(machine_catalog.load_models() if models is None else models)
        simulated_host.write_simulated_host(machine, models, directory / _HOST_ROOT)
        state = initial(name, machine, models, now=time.monotonic())
        mig_capabilities.show_instances(directory / _HOST_ROOT, state)
        return cls._write(state, directory)

    @classmethod
    def replay(cls, recording: Recording, directory: Path, *, name: str) -> Self:
        """Write a recorded machine's answers and host tree, and open it."""
        recording_file.restore_host(recording, directory / _HOST_ROOT)
        recording_file.save_recording(recording, directory / _RECORDING_FILE, replace=True)
        driver: DriverCondition = "ok" if recording.library else "absent"
        return cls._write(
            MachineState(name=name, recording=_RECORDING_FILE, driver=driver), directory
        )

    @classmethod
    def open(cls, state_file: Path) -> Self:
        """A machine that was made before. Raises BadInput where the file is none."""
        file = StateFile(state_file)
        file.read()
        return cls(file)

    @classmethod
    def _write(cls, state: MachineState, directory: Path) -> Self:
        directory.mkdir(parents=True, exist_ok=True)
        file = StateFile(directory / _STATE_FILE)
        file.write(state)
        return cls(file)

    @property
    def state_file(self) -> Path:
        """Path of the file with its state."""
        return self._file.path

    @property
    def host_root(self) -> Path:
        """Below it lie the machine's sys, proc and dev."""
        return self._file.path.with_name(_HOST_ROOT)

    @property
    def state(self) -> MachineState:
        """The newest state; resets whose time is over have ended."""
        return gpu_reset.settled(self._file.read(), self.clock())

    def driver(self, caller: CallingProcess | None = None) -> SimulatedDriver:
        """NVML as one process has it that uses this machine: ``caller``, or this process."""
        return SimulatedDriver(self._file, self._machine(), caller, changed=self._show_instances)

    # under pynvml

    def install(self) -> None:
        """Let pynvml load this machine in this process, instead of any other simulated one."""
        if Simulation._installed is not None:
            Simulation._installed.uninstall()
        self._driver = self.driver()
        self._undo = put_under_pynvml(self._load)
        Simulation._installed = self

    def uninstall(self) -> None:
        """Give pynvml its own loader back; sessions on this machine end."""
        if Simulation._installed is self and self._driver is not None:
            Simulation._installed = None
            self._undo()
            self._driver.close()

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *error: object) -> None:
        self.uninstall()

    def _load(self, name: str) -> Library:
        if self._driver is None or self.state.driver == "absent":
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return Library(self._driver)

    def _machine(self) -> Answers:
        recording = self.state.recording
        if recording is None:
            return ComputedMachine(lambda: self.clock())
        return RecordedMachine(
            recording_file.load_recording(self.state_file.with_name(recording)).calls
        )

    # what happens to it

    def edit(self, change: Edit) -> MachineState:
        """Change the state by a pure function of it; gives the new state."""
        return self._file.edit(lambda state: change(gpu_reset.settled(state, self.clock())))

    def fault(
        self,
        action: Action,
        entry: str = "*",
        *,
        bus_id: str | None = None,
        after: int = 0,
        times: int | None = None,
        late: bool = False,
    ) -> int:
        """Let calls go wrong from now on; gives the number that clears the fault.

        ``entry`` is a shell pattern on the C name, or several with blanks between them;
        ``bus_id`` confines it to one GPU; ``after`` lets so many matching calls go well
        first; ``times`` ends it after so many more; ``late``: when the call's work is done,
        so that the caller does not learn what came of it.
        ``fault(Return(code=15), bus_id=…)`` is a lost GPU. Raises BadInput for a pattern that no
        entry point matches and a GPU that is not there.
        """
        change = edits.with_fault(action, entry, bus_id=bus_id, after=after, times=times, late=late)
        return self.edit(change).faults[-1].id

    def clear(self, fault_id: int | None = None) -> None:
        """Take one fault away, or all; calls that hang on it go on."""
        self.edit(edits.without_faults(fault_id))

    def xid(
        self,
        bus_id: str,
        code: int,
        *,
        gpu_instance_id: int | None = None,
        compute_instance_id: int | None = None,
    ) -> None:
        """Let an XID happen; one waiter that listens to the GPU gets it."""
        event = XidEvent(
            bus_id=bus_id,
            code=code,
            gpu_instance_id=gpu_instance_id,
            compute_instance_id=compute_instance_id,
        )
        self.edit(edits.with_event(event))

    def set_driver(self, condition: DriverCondition) -> None:
        """Load, unload, remove or mismatch the driver; a session that is open goes on."""
        self.edit(lambda state: replace(state, driver=condition))

    def remove_gpu(self, bus_id: str) -> None:
        """Take a GPU off NVML's count, as a surprise removal does; open handles are lost."""
        self.edit(edits.with_gpu_changed(bus_id, listed=False))

    def return_gpu(self, bus_id: str) -> None:
        """Put a removed GPU back."""
        self.edit(edits.with_gpu_changed(bus_id, listed=True))

    def hide_pci(self, *bus_ids: str) -> None:
        """Let sysfs not show these PCI functions, or none at all, as below a wrong host root."""
        simulated_host.hide_functions(self.host_root, bus_ids)

    def reset_gpu(self, bus_id: str) -> None:
        """Reset a GPU: a pending MIG mode holds, its MIG instances are gone.

        Raises BadInput while anything uses it, or has NVML open on the machine, and in a virtual
        machine, which cannot reset a GPU that is passed through to it.
        """
        self._refuse_clients(f"the GPU at {bus_id} is in use")
        self.change(edits.with_reset(bus_id))

    def reload_driver(self) -> None:
        """Unload the driver and load it again: no MIG instance is left, nor on Hopper and later
        the MIG mode.

        Raises BadInput while anything uses a GPU, or has NVML open on the machine.
        """
        self._refuse_clients("the driver is in use")
        self.change(edits.with_driver_loaded(self.clock()))
        simulated_host.load_module_again(self.host_root)

    def reboot(self) -> None:
        """Another boot of the host: the driver is loaded anew, no process and no XID is left."""
        now = self.clock()

        def change(state: MachineState) -> MachineState:
            state = edits.without_processes(lambda _: True, now)(state)
            return edits.with_driver_loaded(now, rebooting=True)(state)

        self.change(change)
        simulated_host.change_boot_id(self.host_root)

    def _refuse_clients(self, subject: str) -> None:
        if self.clients():
            raise BadInput(f"{subject}: close NVML in all processes first")

    def change(self, change: Edit) -> MachineState:
        """An edit that may change instances; processes that have ended are swept out before."""
        now = self.clock()

        def swept(state: MachineState) -> MachineState:
            ended = edits.without_processes(
                lambda process: not clients.is_running(process, now), now
            )
            return change(ended(gpu_reset.settled(state, now)))

        return self._file.edit(swept, then=self._show_instances)

    def _show_instances(self, state: MachineState) -> None:
        mig_capabilities.show_minors(self.host_root, state)
        mig_capabilities.show_instances(self.host_root, state)

    def make_device_nodes(self) -> None:
        """Make device nodes, as nvidia-modprobe does, for the MIG instances that there are."""
        mig_capabilities.make_device_nodes(self.host_root, self.state)

    def set_resets(self, **settings: Any) -> None:
        """Change what resets do from now on, by the field names of ResetSpec."""
        self.edit(lambda state: replace(state, reset=replace(state.reset, **settings)))

    def links_down(self, bus_id: str, *links: int) -> None:
        """These NVLinks, and no others, are down as this GPU sees them."""
        self.edit(edits.with_gpu_changed(bus_id, links_down=links))

    def set_readings(self, bus_id: str, **readings: Any) -> None:
        """Fix readings of a GPU, by the field names of state.Readings; None frees one again."""
        self.edit(edits.with_readings(bus_id, **readings))

    def add_process(self, bus_id: str, pid: int, **facts: Any) -> None:
        """Start a process on a GPU; ``facts`` are fields of state.Process."""
        process = SimulatedProcess(pid=pid, bus_id=bus_id, started=self.clock(), **facts)
        self.edit(edits.with_process(process))

    def remove_process(self, pid: int, *, after_seconds: float = 0.0) -> None:
        """End a process on all GPUs; one that dies late uses them for some seconds more."""
        now = self.clock()
        if after_seconds:
            self.edit(edits.with_process_ending(pid, now + after_seconds))
        else:
            self.edit(edits.without_processes(lambda process: process.pid == pid, now))

    def use_by(
        self,
        pid: int,
        bus_id: str,
        *,
        gpu_instance_id: int | None = None,
        compute_instance_id: int | None = None,
        **facts: Any,
    ) -> None:
        """Let a running process use a GPU, or one MIG device of it, until it ends."""
        self.add_process(
            bus_id,
            pid,
            name=clients.running_process_name(pid),
            ticks=clients.client_of(pid).started,
            gpu_instance_id=gpu_instance_id,
            compute_instance_id=compute_instance_id,
            **facts,
        )

    def revoke(self, *rights: Right) -> None:
        """Run without these rights and no others, as a container that is not privileged.

        Files that the kernel would refuse are as it gives them then: capability files
        are not there, and PCI configuration space ends after its header.
        """
        state = self.edit(lambda state: replace(state, lacking=rights))
        if state.machine is not None:
            simulated_host.write_simulated_host(state.machine, state.models, self.host_root, rights)
            self._show_instances(state)
            if "mig-access" not in rights:
                self.make_device_nodes()

    def lack(self, *entries: str) -> None:
        """Have a library without these entry points and no others, from the next load on.

        Programs that are not ours find them, and are answered FUNCTION_NOT_FOUND: one library is
        built for all machines. Raises BadInput for a name that no entry point has.
        """
        self.edit(edits.with_missing(entries))

    # what was done with it

    def log_calls(self, on: bool = True) -> None:
        """Begin a new log of calls, or end logging; it costs every call a write."""
        if on:
            clients.call_log(self.state_file).unlink(missing_ok=True)
        self.edit(lambda state: replace(state, log_calls=on))

    def calls(self) -> Counter[tuple[str, str | None]]:
        """Logged calls by C name and bus id: None for a call on no GPU."""
        return clients.logged_calls(clients.call_log(self.state_file))

    def clients(self) -> int:
        """Running processes that have NVML initialised on this machine."""
        return len(clients.live(self.state.clients))


def simulate(spec: str, directory: Path) -> Simulation:
    """The machine that a person named, made in ``directory`` where it has to be made.

    ``spec`` is a machine's name, or the path of a state file, a recording or a
    machine's YAML file. Raises BadInput that names the nearest machines, or the
    file with line and key, and the fix.
    """
    path = Path(spec)
    if spec in machine_catalog.machine_names():
        return Simulation.create(spec, directory)
    if not path.is_file():
        hint = spelling_hint(spec, machine_catalog.machine_names())
        raise BadInput(
            f"there is no machine and no file {spec!r}; {hint}"
            " `gpuscape simulate --list` shows all machines"
        )
    if path.suffix in (".yaml", ".yml"):
        return Simulation.create(machine_catalog.read_machine_file(path), directory, name=path.stem)
    schema = schema_in(read_bytes(path, most_bytes=MOST_BYTES), str(path))
    if schema == SCHEMA:
        return Simulation.open(path)
    if schema == recording_file.SCHEMA:
        return Simulation.replay(recording_file.load_recording(path), directory, name=path.stem)
    raise BadInput(
        f"{path} is no machine: name a *.yaml machine file,"
        f" or a JSON file with the schema {SCHEMA} or {recording_file.SCHEMA}"
    )
