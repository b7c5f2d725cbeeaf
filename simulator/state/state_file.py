# SPDX-License-Identifier: Apache-2.0
"""The state file: read by many processes, changed by one at a time, replaced as a whole."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from base.errors import BadInput
from simulator.description.document import decode
from simulator.state.machine_state import SCHEMA, Edit, MachineState


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of the file, held open: no newer one can get the same inode meanwhile."""

    state: MachineState
    identity: tuple[int, ...]
    descriptor: int

    def __del__(self) -> None:
        os.close(self.descriptor)


class StateFile:
    """A state file; threads may share it. Reads cost a stat call while nothing changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version: _Version | None = None
        self._loading = threading.Lock()

    def read(self) -> MachineState:
        """The newest state; the same object while the file is the same.

        Raises BadInput that names the file and what is wrong with it.
        """
        version = self._version
        try:
            if version is not None and _identity(self.path.stat()) == version.identity:
                return version.state
            with self._loading:
                self._version = version = self._load()
        except OSError as error:
            raise BadInput(f"cannot read the state file {self.path}: {error.strerror}") from error
        return version.state

    def edit(
        self, change: Edit, *, then: Callable[[MachineState], None] | None = None
    ) -> MachineState:
        """Change the state while no other process does; gives the state it became.

        Readers see the old state or the new one, never a mixture, also where this process is
        killed meanwhile. ``then`` is called with the new state before another process changes it.
        """
        with self._locked():
            state = change(self.read())
            self._replace(state)
            if then is not None:
                then(state)
        return state

    def write(self, state: MachineState) -> None:
        """Replace the file, whatever was in it."""
        with self._locked():
            self._replace(state)

    def _replace(self, state: MachineState) -> None:
        """Replace the file; a half file of a process killed here is overwritten by the next one."""
        body = msgspec.json.format(msgspec.json.encode(state), indent=1)
        half = self.path.with_name(f".{self.path.name}.half")
        try:
            half.write_bytes(body)
            half.replace(self.path)
        except BaseException:
            half.unlink(missing_ok=True)
            raise

    def _load(self) -> _Version:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with open(descriptor, "rb", closefd=False) as stream:
                state = decode(stream.read(), str(self.path), MachineState, SCHEMA)
            return _Version(state, _identity(os.fstat(descriptor)), descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(f"{self.path}.lock", "w") as lock:  # noqa: PTH123 - a suffix more, not another
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
