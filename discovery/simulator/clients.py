"""Which processes have NVML initialised; one that died does not count, as its files are closed."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from discovery.simulator.state import Client, Edit, State

_STATE, _STARTED = 0, 19  # places of fields 3 and 22 after the process name; proc(5)


def this_process() -> Client:
    """The calling process."""
    return of(os.getpid())


def of(pid: int) -> Client:
    """The process that has this id now."""
    return Client(pid=pid, started=_started(pid) or 0)


def live(clients: tuple[Client, ...]) -> frozenset[Client]:
    """Those that still run: a process id alone may belong to another process by now."""
    return frozenset(client for client in clients if _started(client.pid) == client.started)


def joined(client: Client) -> Edit:
    """The state with one client more; dead ones are swept out on the way."""

    def change(state: State) -> State:
        return replace(state, clients=(*sorted(live(state.clients), key=_by_pid), client))

    return change


def left(client: Client) -> Edit:
    """The state with one client less."""

    def change(state: State) -> State:
        return replace(state, clients=tuple(one for one in state.clients if one != client))

    return change


def _by_pid(client: Client) -> int:
    return client.pid


def _started(pid: int) -> int | None:
    """Start of a running process in clock ticks since boot; None for one that ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return None if fields[_STATE] in ("Z", "X") else int(fields[_STARTED])
