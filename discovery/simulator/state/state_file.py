# SPDX-License-Identifier: Apache-2.0
"""The state file: read by many processes, changed by one at a time, replaced as a whole."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from base.errors import BadInput
from discovery.simulator.description.document import decode
from discovery.simulator.state.machine_state import SCHEMA, Edit, MachineState


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of the file, held open: no newer one can get the same inode meanwhile."""

    state: MachineState
    identity: tuple[int, ...]
    descriptor: int

    def __del__(self) -> None:
        os.close(self.descriptor)


class StateFile:
    """One state file; threads may share it. Reads cost a stat call while nothing changed."""

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

    def edit(self, change: Edit) -> MachineState:
        """Change the state while no other process does; gives the state it became.

        Readers see the old state or the new one, never a mixture.
        """
        with self._locked():
            state = change(self.read())
            self.write(state)
        return state

    def write(self, state: MachineState) -> None:
        """Replace the file, whatever was in it."""
        body = msgspec.json.format(msgspec.json.encode(state), indent=1)
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".state-")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(body)
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
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
