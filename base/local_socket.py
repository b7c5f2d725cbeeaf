# SPDX-License-Identifier: Apache-2.0
"""Requests over a Unix socket: one connection for one line of request and one of answer. Linux."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from base.errors import Transient

_CREDENTIALS = struct.Struct("3i")
_CHUNK_BYTES = 1 << 16
_CROWDED_SECONDS = 0.02


class NoAnswer(Transient):
    """There is no answer from the socket, or not in time, or it is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProcess:
    """The process at the other end, as the kernel saw it when the connection was made."""

    pid: int
    """0 for a process of another PID namespace."""
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> PeerProcess:
    """The other end of a connected Unix socket. Source: unix(7), SO_PEERCRED."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    return PeerProcess(pid=pid, uid=uid, gid=gid)


def exchange(
    path: Path,
    line: bytes,
    *,
    timeout_seconds: float,
    most_bytes: int,
    servers: Collection[int] | None = None,
) -> bytes:
    """Send a line and return the line that answers it, both without their line end.

    ``servers``: user ids that the server may have; by default root and this process' own. Raises
    NoAnswer, although the server may have taken the request.
    """
    trusted = {0, os.geteuid()} if servers is None else servers
    deadline = time.monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.settimeout(timeout_seconds)
            _connect(connection, path, deadline)
            server = peer_of(connection)
            if server.uid not in trusted:
                raise NoAnswer(f"{path}: user {server.uid} serves it, and is not trusted")
            try:
                connection.sendall(line + b"\n")
                connection.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server refused before it read all; its answer says why
            return _line(connection, deadline, most_bytes, path)
        except OSError as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else error.strerror
            raise NoAnswer(f"{path}: {why or error}") from error


def _connect(connection: socket.socket, path: Path, deadline: float) -> None:
    """Connect; waits while the socket's queue is full.

    Source: unix(7), EAGAIN: connect() itself does not wait where the socket has a timeout.
    """
    while True:
        try:
            return connection.connect(str(path))
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(_CROWDED_SECONDS)


def _line(connection: socket.socket, deadline: float, most_bytes: int, path: Path) -> bytes:
    data = b""
    while b"\n" not in data:
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            raise TimeoutError
        connection.settimeout(remaining_seconds)
        chunk = connection.recv(_CHUNK_BYTES)
        if not chunk:
            raise NoAnswer(f"{path}: the connection ended without an answer")
        data += chunk
        if len(data) > most_bytes:
            raise NoAnswer(f"{path}: the answer is longer than {most_bytes} bytes")
    return data.partition(b"\n")[0]
