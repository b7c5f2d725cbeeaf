# SPDX-License-Identifier: Apache-2.0
"""Serves a simulated machine to programs that load the simulator's C library.

Each process that calls is a session of its own, with its handles, event sets and NVML sessions,
as if the library did the work in that process. A session lives as long as one of its connections.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml

from base import threads
from simulator.clibrary import call_format
from simulator.clibrary.c_source import digest
from simulator.clibrary.call_format import AnswerKind, BrokenCall, Call, Stream
from simulator.clibrary.exports import exports
from simulator.clibrary.listening_socket import listening_socket
from simulator.driver import clients
from simulator.driver.library import Library
from simulator.driver.simulated_driver import SimulatedDriver
from simulator.simulation import Simulation

_PEER = struct.Struct("=3i")  # struct ucred: pid, uid, gid; unix(7)
_CLOSING_SECONDS = 5.0
"""Time for calls under way to end; a call that a fault delays for longer is left alone."""
_HELLO_BYTES = len(digest()) + call_format.NONCE_BYTES


class ServedProcess:
    """A process on the other end of connections: what befalls it goes to the one that called."""

    def __init__(self, pid: int) -> None:
        self.client = clients.client_of(pid)
        self._calling = threading.local()

    def calling_by(self, connection: socket.socket, stream: Stream) -> None:
        """From now on this thread serves that connection."""
        self._calling.connection, self._calling.stream = connection, stream

    def has_gone(self) -> bool:
        """The connection has been closed, as it is when its process ends."""
        try:
            # it sends nothing while it waits for an answer
            return not self._calling.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @contextlib.contextmanager
    def deaf_to_sigterm(self) -> Iterator[None]:
        """The library ignores SIGTERM for the process, within."""
        self._send(AnswerKind.DEAF)
        try:
            yield
        finally:
            self._send(AnswerKind.HEARING)

    def crash(self, ending: str, prints: str) -> None:
        """Have the library end the process, and wait until it has."""
        self._send(AnswerKind.EXIT if ending == "exit" else AnswerKind.KILL, prints.encode())
        with contextlib.suppress(OSError):
            self._calling.stream.read(1)

    def leak(self, memory_bytes: int, descriptors: int) -> None:
        """Nothing: the library takes no orders but those that end a call."""

    def _send(self, kind: AnswerKind, body: bytes = b"") -> None:
        with contextlib.suppress(OSError, ValueError):  # it has gone
            call_format.send(self._calling.stream, kind, body)


class _Session:
    """NVML in one process that is served."""

    def __init__(self, simulation: Simulation, pid: int) -> None:
        self.process = ServedProcess(pid)
        self.driver: SimulatedDriver = simulation.driver(self.process)
        self.library = Library(self.driver)
        self.connections = 0


class MachineServer:
    """Answers on a socket in a folder, in threads of its own, until it is closed."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        """Raises OSError where the socket cannot be made, BadInput where another server has it."""
        self._simulation = simulation
        self._closed = False
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._address = folder / call_format.SOCKET_NAME
        self._sessions: dict[tuple[int, bytes], _Session] = {}
        self._lock = threading.Lock()
        self._socket = listening_socket(self._address)

    def start(self) -> None:
        """Begin to answer. Raises NoThread."""
        threads.started(self._accept, "nvml-accept")

    def close(self) -> None:
        """Answer no more; all sessions end, and callers get NVML_ERROR_UNKNOWN."""
        self._address.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            self._closed = True
            sessions = list(self._sessions.values())
            self._sessions.clear()
            serving = list(self._connections.values())
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in serving:  # until then they may write to the machine's folder
            thread.join(max(0.0, deadline - time.monotonic()))
        for session in sessions:
            session.driver.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with contextlib.suppress(threads.NoThread):
                threads.started(functools.partial(self._serve, connection), "nvml-caller")
                continue
            connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            if self._closed:
                connection.close()
                return
            self._connections[connection] = threading.current_thread()
        try:
            with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
                self._converse(connection, stream)
        finally:
            with self._lock:
                del self._connections[connection]

    def _converse(self, connection: socket.socket, stream: Stream) -> None:
        hello = stream.read(_HELLO_BYTES)
        known = hello[: len(digest())] == digest().encode() and len(hello) == _HELLO_BYTES
        stream.write(bytes([known]))
        stream.flush()
        if known:
            pid = _PEER.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            )[0]
            with self._joined((pid, hello[len(digest()) :])) as session:
                session.process.calling_by(connection, stream)
                _answer_all(session, stream)

    @contextlib.contextmanager
    def _joined(self, key: tuple[int, bytes]) -> Iterator[_Session]:
        """The session of a process, one connection more within."""
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = _Session(self._simulation, key[0])
            session.connections += 1
        try:
            yield session
        finally:
            with self._lock:
                session.connections -= 1
                last = session.connections == 0 and self._sessions.pop(key, None) is session
            if last:
                session.driver.close()


def _answer_all(session: _Session, stream: Stream) -> None:
    """Answer calls until the caller goes; one that makes no sense ends the connection."""
    with contextlib.suppress(BrokenCall):
        while (body := call_format.receive(stream)) is not None:
            call = call_format.decode(body, exports())
            answer = call_format.encode(call, _result(session, call))
            call_format.send(stream, AnswerKind.ANSWER, answer)


def _result(session: _Session, call: Call) -> int | bytes | None:
    """Return value of the called function."""
    try:
        function = getattr(session.library, call.export.name)
    except AttributeError:
        return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    result: int | bytes | None = function(*call.arguments)
    return result
