# SPDX-License-Identifier: Apache-2.0
"""A reset by the driver's own nvidia-smi, for a MIG mode that the driver itself does not activate.

For each change of a GPU it is made once at most, where ``mig-reset`` allows it, and only while no
program is seen that has the GPU open; the journal has it before it begins. From Ampere on a GPU is
reset alone, on NVSwitches while Fabric Manager runs: :mod:`actuator.fabric_manager`. In many
virtual machines nvidia-smi cannot reset either, and says so. Source: nvidia-smi(1),
``--gpu-reset`` and its tables.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, Protocol

from msgspec.structs import replace

from actuator.change_record import ChangeRecord, Direction
from actuator.gpu_holders import gpu_holders, is_held
from actuator.journal import Journal, JournalUnusable
from actuator.layout_steps import reach
from actuator.mig_world import MigWorld, StepFailed
from actuator.mode_reset import read_back
from api.mig_mode_change import MigReset
from base.errors import Transient
from base.process.orphans import OwnProcess
from base.text.safe_text import short_line
from discovery.driver_errors import MigChangeFailed
from discovery.mig_state import MigGpu
from discovery.nvml.changing.mig_changes import set_mig_mode
from discovery.nvml.session import close_session
from mig.gpu_layout import GpuLayout
from mig.steps import MigStep

log = logging.getLogger(__name__)

PROGRAM: Final = "usr/bin/nvidia-smi"
"""Below the driver root."""
_DRIVER_ROOTS: Final = ("run/nvidia/driver", "")
"""Below the host's root: that of the GPU operator's driver container, and the host's own. Source:
NVIDIA/gpu-operator, DRIVER_INSTALL_DIR."""
MOST_OUTPUT: Final = 400
"""Characters of its output in the reason of an outcome; more is read and dropped."""
_STARTER: Final = """\
import ctypes, os, sys
parent, root, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(parent):
    sys.exit(1)
if root:
    os.chroot(root)
    os.chdir("/")
os.execv(command[0], command)
"""
"""Starts a program in its root, where its libraries are. It ends with the process that waits for
it: a reset that came later would hit a layout made meanwhile."""


class OneReset:
    """The reset that a change may have, if it needs one."""

    def __init__(self, world: MigWorld, journal: Journal, *records: ChangeRecord) -> None:
        self.records = records
        """The entries, with the reset once it was begun: one, or those of GPUs that share it."""
        self.is_lacking = False
        """A step of the change has lacked a reset."""
        self._world, self._journal = world, journal

    def perform(self, step: MigStep) -> None:
        """Take a step, by a reset where that is what it lacks. Raises StepFailed."""
        try:
            self._world.perform(step)
        except StepFailed as failure:
            self.is_lacking = self.is_lacking or failure.needs_reset
            (record,) = self.records
            if not failure.needs_reset or record.fallback.reset is MigReset.OFF:
                raise
            if record.reset:
                why = f"{failure}; nvidia-smi was started once to reset it"
                raise StepFailed(why) from failure
            self.make()

    def make(self) -> None:
        """Have the GPUs reset for their new modes. Raises StepFailed."""
        modes = {record.gpu: record.desired.mig for record in self.records}
        self._world.reset_by_smi(modes, self._note)

    def _note(self) -> None:
        """Write the entries with their reset. Raises StepFailed."""
        begun = tuple(replace(record, reset=True) for record in self.records)
        try:
            self._journal.write(*begun)
        except JournalUnusable as error:
            raise StepFailed(f"no reset, since the journal cannot note it: {error}") from error
        self.records = begun


def reset_together(
    world: MigWorld, journal: Journal, records: Sequence[ChangeRecord]
) -> tuple[ChangeRecord, ...]:
    """Empty GPUs that can only be reset together, and have all of them reset for their new modes.

    Gives the entries as each GPU goes on by itself: all of them back, with the reason, where the
    reset did not bring a mode.
    """
    by_smi = OneReset(world, journal, *records)
    try:
        for record in records:
            _emptied(world, record)
        by_smi.make()
    except StepFailed as error:
        back, why = Direction.BACK, str(error)
        return tuple(replace(record, direction=back, reason=why) for record in by_smi.records)
    return by_smi.records


def _emptied(world: MigWorld, record: ChangeRecord) -> None:
    """Destroy what is on the GPU. Raises StepFailed where somebody uses it."""
    if record.previous.mig and (why := reach(world, record.gpu, GpuLayout(mig=True))):
        raise StepFailed(f"GPU {record.bus_id}: {why}")


class GpuCalls(Protocol):
    """The session with the driver."""

    @property
    def root(self) -> Path:
        """The host's root."""

    @property
    def simulated(self) -> bool:
        """Whether the machine is simulated."""

    def turn_to(self, bus_id: str) -> None:
        """The calls that follow are for this GPU."""

    def reopen(self, bus_id: str) -> None:
        """End the session, begin another, and turn to this GPU. Raises StepFailed."""


NewModes = Sequence[tuple[MigGpu, bool]]
"""GPUs with the mode that each one is to have."""


def reset_by_smi(calls: GpuCalls, modes: NewModes, note: Callable[[], None]) -> None:
    """Ask for the modes, and have nvidia-smi reset the GPUs in one command if nobody has one open.

    ``note`` is called once nothing but the reset is missing. There is no session with the driver
    while nvidia-smi runs. It has the time that the worker has for a GPU: one that hangs is left
    alone, and so is its GPU. Raises StepFailed where a mode does not hold afterwards; it may wait
    then, and the way back of the change takes it back.
    """
    bus_ids = ",".join(gpu.bus_id for gpu, _ in modes)
    folder = _driver_root(calls.root)
    if folder is None:
        raise StepFailed(f"GPU {bus_ids}: no {PROGRAM} on the host that could reset it")
    waiting: list[MigGpu] = []
    try:
        _need_idle(calls, modes)
        waiting.extend(gpu for gpu, on in modes if _waits(calls, gpu, on))
        if waiting:
            note()
    except (OSError, Transient, StepFailed) as error:
        passes = isinstance(error, StepFailed | MigChangeFailed) and error.passes
        raise StepFailed(f"GPU {bus_ids}: {error}", passes=passes) from error
    if waiting:
        close_session()
        answer = smi_answer(folder, ("--gpu-reset", "-i", bus_ids), simulated=calls.simulated)
        log.info("MIG reset by nvidia-smi", extra={"bus_id": bus_ids, "answer": answer})
        _need_modes(calls, modes, answer)


def _need_idle(calls: GpuCalls, modes: NewModes) -> None:
    for gpu, _ in modes:
        calls.turn_to(gpu.bus_id)
        if is_held(gpu, calls.root, simulated=calls.simulated):
            held = gpu_holders(gpu, calls.root, simulated=calls.simulated)
            why = f"nvidia-smi resets the GPU once no program has it open; {held}"
            raise StepFailed(why, passes=True)


def _waits(calls: GpuCalls, gpu: MigGpu, on: bool) -> bool:
    """Ask for the mode; whether it waits: the driver may reset the GPU after all."""
    calls.turn_to(gpu.bus_id)
    if not set_mig_mode(gpu, on=on, may_wait=True):
        return True
    read_back(gpu, calls.reopen)
    return False


def _need_modes(calls: GpuCalls, modes: NewModes, answer: str) -> None:
    """Raise StepFailed where a GPU does not have its mode. ``answer``: that of nvidia-smi."""
    failures = []
    for gpu, on in modes:
        try:
            back = read_back(gpu, calls.reopen)
        except StepFailed as error:
            failures.append(f"{error}; {answer}")
            continue
        if back.mode is None or back.mode.current != on:
            hidden = gpu_holders(back, calls.root, simulated=calls.simulated)
            failures.append(f"GPU {gpu.bus_id}: {answer}" + f"; {hidden}" * (" use" in answer))
    if failures:
        raise StepFailed(failures[0])


def _driver_root(root: Path) -> Path | None:
    """Where the driver is installed; the link to the program may be one below that root."""
    folders = (root / name for name in _DRIVER_ROOTS)
    return next((folder for folder in folders if os.path.lexists(folder / PROGRAM)), None)


def smi_answer(folder: Path, arguments: Sequence[str], *, simulated: bool) -> str:
    """How nvidia-smi of a driver root ended, and what it printed, in words."""
    chroot, program = ("", str(folder / PROGRAM)) if simulated else (str(folder), f"/{PROGRAM}")
    starter = (sys.executable, "-I", "-c", _STARTER, str(os.getpid()), chroot)
    try:
        process = OwnProcess(
            [*starter, program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            start_new_session=True,
        )
    except OSError as error:
        return f"nvidia-smi cannot be started: {error.strerror or error}"
    with process:
        output = b"" if process.stdout is None else _beginning(process.stdout)
    text = short_line(output.decode("utf-8", "replace"), MOST_OUTPUT)
    return f"nvidia-smi {' '.join(arguments)} ended with {process.returncode}: {text}"


def _beginning(output: IO[bytes]) -> bytes:
    """Read to the end, since a full pipe would stop a program in the middle of a reset."""
    beginning = output.read(4 * MOST_OUTPUT)
    while output.read(1 << 16):
        pass
    return beginning
