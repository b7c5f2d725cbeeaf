# SPDX-License-Identifier: Apache-2.0
"""Users of a simulated machine: processes that have NVML initialised, and the calls of all.

A process that died does not count, as its files are closed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from simulator.state.machine_state import (
    Edit,
    MachineState,
    NvmlClient,
    SimulatedProcess,
)

_STATE, _STARTED = 0, 19  # places of fields 3 and 22 after the process name; proc(5)


def this_process() -> NvmlClient:
    """The calling process."""
    return client_of(os.getpid())


def client_of(pid: int) -> NvmlClient:
    """The process that has this id now."""
    return NvmlClient(pid=pid, started=_started(pid) or 0)


def live(clients: tuple[NvmlClient, ...]) -> frozenset[NvmlClient]:
    """Clients that still run: a process id alone may belong to another process by now."""
    return frozenset(client for client in clients if _started(client.pid) == client.started)


def is_running(process: SimulatedProcess, now: float) -> bool:
    """Whether a process has not ended; ``now`` is in monotonic seconds."""
    if process.ends is not None and process.ends <= now:
        return False
    return process.ticks is None or _started(process.pid) == process.ticks


def running_process_name(pid: int) -> str:
    """Name of a running process; empty for one that ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def with_client(client: NvmlClient) -> Edit:
    """Add a client to the state; dead ones are swept out on the way."""

    def change(state: MachineState) -> MachineState:
        return replace(state, clients=(*sorted(live(state.clients), key=_by_pid), client))

    return change


def without_client(client: NvmlClient) -> Edit:
    """Take a client out of the state."""

    def change(state: MachineState) -> MachineState:
        return replace(state, clients=tuple(other for other in state.clients if other != client))

    return change


def call_log(state_file: Path) -> Path:
    """Path of the log of calls on the machine in a state file."""
    return state_file.with_name(state_file.name + ".calls")


def log_call(path: Path, entry: str, bus_ids: Iterable[str]) -> None:
    """Append one call: a line so short that those of several processes never mix."""
    line = " ".join((entry, *dict.fromkeys(bus_ids))) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def logged_calls(path: Path) -> Counter[tuple[str, str | None]]:
    """Calls by C name and bus id: None for a call on no GPU, both for a call on two."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else ()
    counted: Counter[tuple[str, str | None]] = Counter()
    for entry, *bus_ids in map(str.split, lines):
        counted.update((entry, bus_id) for bus_id in bus_ids or (None,))
    return counted


def _by_pid(client: NvmlClient) -> int:
    return client.pid


def _started(pid: int) -> int | None:
    """Start of a running process in clock ticks since boot; None for one that ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return None if fields[_STATE] in ("Z", "X") else int(fields[_STARTED])
