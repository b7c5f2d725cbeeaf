# SPDX-License-Identifier: Apache-2.0
"""The program nvidia-smi in a simulated machine's driver root, and the thread that answers it.

The program only passes its arguments on to the process that serves the machine: that one sees who
uses the machine also where a mount namespace hides it from the program.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from base import threads
from base.errors import BadInput
from discovery.nvml_abi.argument_kinds import Nvml
from simulator.clibrary.listening_socket import listening_socket
from simulator.clibrary.machine_server import ServedProcess
from simulator.simulation import Simulation
from simulator.smi.smi_actions import SmiAnswer, run_smi

PROGRAM_FOLDER: Final = "usr/bin"
"""Below the driver root."""
_SOCKET: Final = ".nvidia-smi.sock"
_PEER: Final = struct.Struct("=3i")  # struct ucred: pid, uid, gid; unix(7)

_PROGRAM: Final = """#!{python} -IS
import os, socket, sys
os.chdir(os.path.dirname(os.path.realpath(__file__)))  # a socket's address holds 107 bytes
reply = ""
with socket.socket(socket.AF_UNIX) as serving:
    try:
        serving.connect({socket!r})
        serving.sendall("\\0".join(sys.argv[1:]).encode() + b"\\n")
        reply = serving.makefile().read()
    except OSError:
        pass
code, _, text = reply.partition("\\n")
print(text or "NVIDIA-SMI has failed: the NVIDIA driver is not running.\\n", end="")
sys.exit(int(code or 9))
"""
"""Without an answer it ends as without a driver."""


@contextmanager
def served_smi(simulation: Simulation) -> Iterator[Path]:
    """Have the program in the driver root within; gives its path.

    Raises BadInput where it cannot be made, or another process serves the machine.
    """
    folder = simulation.host_root.resolve() / PROGRAM_FOLDER
    program = folder / "nvidia-smi"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        listening = listening_socket(folder / _SOCKET)
        program.write_text(_PROGRAM.format(python=sys.executable, socket=_SOCKET), "utf-8")
        program.chmod(0o755)
    except OSError as error:
        raise BadInput(
            f"cannot make nvidia-smi in {folder}: {error.strerror}; name another folder"
        ) from error
    server = _SmiServer(simulation, listening)
    try:
        server.start()
        yield program
    finally:
        for path in (program, folder / _SOCKET):
            path.unlink(missing_ok=True)
        server.close()


class _SmiServer:
    """Answers each run of the program in a thread of its own, until it is closed."""

    def __init__(self, simulation: Simulation, listening: socket.socket) -> None:
        self._simulation = simulation
        self._listening = listening
        self._lock = threading.Lock()
        self._runs: dict[socket.socket, threading.Thread | None] = {}

    def start(self) -> None:
        """Begin to answer. Raises NoThread."""
        self._accepting = threads.started(self._accept, "smi-accept")

    def close(self) -> None:
        """End; programs that wait for an answer end as without a driver."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listening.close()
        with self._lock:
            runs = dict(self._runs)
            for connection in runs:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in runs.values():
            if thread is not None:
                thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with self._lock:
                    self._runs[connection] = None
                    try:
                        run = functools.partial(self._answer, connection)
                        self._runs[connection] = threads.started(run, "smi-caller")
                    except threads.NoThread:
                        del self._runs[connection]
                        connection.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError, ValueError), connection.makefile("rwb") as stream:
                arguments = stream.readline().decode().rstrip("\n")
                pid = _PEER.unpack(
                    connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                )[0]
                caller = ServedProcess(pid)
                caller.calling_by(connection, stream)
                answer = _run(self._simulation, arguments, caller)
                if answer is not None:
                    stream.write(f"{answer.code}\n{answer.text}".encode())
        finally:
            with self._lock:
                del self._runs[connection]
                connection.close()


def _run(simulation: Simulation, arguments: str, caller: ServedProcess) -> SmiAnswer | None:
    """None where the program was killed meanwhile."""
    try:
        return run_smi(simulation, arguments.split("\0") if arguments else (), caller)
    except Nvml:
        return None
