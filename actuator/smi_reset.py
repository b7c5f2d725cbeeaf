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
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from actuator.change_record import ChangeRecord
from actuator.gpu_holders import gpu_holders, is_held
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.mode_reset import read_back
from api.mig_mode_change import MigReset
from base.errors import Transient
from base.process.orphans import OwnProcess
from base.text.safe_text import short_line
from discovery.driver_errors import MigChangeFailed
from discovery.mig_state import MigGpu
from discovery.nvml.changing.mig_changes import set_mig_mode
from discovery.nvml.session import close_session

log = logging.getLogger(__name__)

PROGRAM: Final = "usr/bin/nvidia-smi"
"""Below the driver root."""
_DRIVER_ROOTS: Final = ("run/nvidia/driver", "")
"""Below the host's root: that of the GPU operator's driver container, and the host's own. Source:
NVIDIA/gpu-operator, DRIVER_INSTALL_DIR."""
MOST_OUTPUT: Final = 400
"""Characters of its output in the reason of an outcome."""
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
    """The reset that the change of one GPU may have, if it needs one."""

    def __init__(self, journal: Journal, record: ChangeRecord) -> None:
        self.record = record
        """The entry, with the reset once it was begun."""
        self._journal = journal

    def instead_of(self, failure: StepFailed) -> StepFailed:
        """Reset the GPU where that is what a step lacked; the error to report without effect."""
        if failure.reset is None or self.record.fallback.reset is MigReset.OFF:
            return failure
        if self.record.reset:
            return StepFailed(f"{failure}; nvidia-smi was started once to reset it")
        try:
            failure.reset(self._note)
        except StepFailed as error:
            return error
        return StepFailed("nvidia-smi reset the GPU without effect")

    def _note(self) -> None:
        begun = msgspec.structs.replace(self.record, reset=True)
        try:
            self._journal.write(begun)
        except JournalUnusable as error:
            raise StepFailed(f"no reset that the journal does not have: {error}") from error
        self.record = begun


def reset_by_smi(
    gpu: MigGpu,
    root: Path,
    note: Callable[[], None],
    reopen: Callable[[], None],
    *,
    on: bool,
    simulated: bool,
) -> None:
    """Ask for the mode and have nvidia-smi reset the GPU. ``root``: the host's.

    ``note`` is called once nothing but the reset is missing, and may raise StepFailed. There is no
    session with the driver while nvidia-smi runs; ``reopen`` begins one. It has the time that the
    worker has for a GPU: one that hangs is left alone, and so is its GPU. Raises StepFailed where
    the mode does not hold afterwards; then it does not wait either, if the driver takes it back.
    """
    folder = _driver_root(root)
    if folder is None:
        raise StepFailed(f"GPU {gpu.bus_id}: no {PROGRAM} on the host that could reset it")
    try:
        if is_held(gpu, root, simulated=simulated):
            held = gpu_holders(gpu, root, simulated=simulated)
            why = f"GPU {gpu.bus_id}: nvidia-smi resets it once nobody has it open; {held}"
            raise StepFailed(why, passes=True)
        if set_mig_mode(gpu, on=on, may_wait=True):
            read_back(gpu, reopen)  # the driver has reset it after all
            return
    except (OSError, Transient) as error:
        raise StepFailed(f"GPU {gpu.bus_id}: {error}") from error
    try:
        note()
    except StepFailed:
        _take_back(gpu, on=on)
        raise
    close_session()
    answer = run_smi(folder, ("--gpu-reset", "-i", gpu.bus_id), simulated=simulated)
    log.info("MIG reset by nvidia-smi", extra={"bus_id": gpu.bus_id, "answer": answer})
    try:
        back = read_back(gpu, reopen)
    except StepFailed as error:
        raise StepFailed(f"{error}; {answer}") from error
    if back.mode is None or back.mode.current != on:
        _take_back(back, on=on)
        hidden = f"; {gpu_holders(back, root, simulated=simulated)}" if " use" in answer else ""
        raise StepFailed(f"GPU {gpu.bus_id}: {answer}{hidden}")


def _driver_root(root: Path) -> Path | None:
    """Where the driver is installed; the link to the program may be one below that root."""
    folders = (root / name for name in _DRIVER_ROOTS)
    return next((folder for folder in folders if os.path.lexists(folder / PROGRAM)), None)


def _take_back(gpu: MigGpu, *, on: bool) -> None:
    with suppress(MigChangeFailed):  # the way back of the change tries it again, and names it
        set_mig_mode(gpu, on=not on)


def run_smi(folder: Path, arguments: Sequence[str], *, simulated: bool) -> str:
    """How nvidia-smi of a driver root ended, and what it printed. Raises StepFailed."""
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
        raise StepFailed(f"nvidia-smi cannot be started: {error.strerror or error}") from error
    output, _ = process.communicate()
    text = short_line(output.decode("utf-8", "replace"), MOST_OUTPUT)
    return f"nvidia-smi {' '.join(arguments)} ended with {process.returncode}: {text}"
