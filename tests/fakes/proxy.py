# SPDX-License-Identifier: Apache-2.0
"""A relay on loopback in front of a server, that breaks connections as networks do.

It never looks inside, so TLS passes through: to the client it is the server.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset, and no end."""


class Mode(Enum):
    """What the relay does with what it gets."""

    PASS = "pass"  # noqa: S105  # not a password
    STALL = "stall"
    """Connections stay open, and nothing goes either way: half-open for both ends."""
    LOSE_REPLIES = "lose-replies"
    """What the client sends arrives; at the answer its connection is reset."""


class Relay:
    """Listens on a port of its own and forwards to ``port``; all on loopback."""

    def __init__(self, port: int) -> None:
        self._target = (LOOPBACK, port)
        self._changed = threading.Condition()
        self._mode = Mode.PASS
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = self._listening(0)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        """Connections so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()

    def set(self, mode: Mode) -> None:
        """Do this from now on, with open connections too."""
        with self._changed:
            self._mode = mode
            self._changed.notify_all()

    def cut(self) -> None:
        """Reset every open connection, towards both ends."""
        with self._changed:
            pairs, self._pairs = self._pairs, set()
            self._changed.notify_all()
        for pair in pairs:
            for end in pair:
                _reset(end)

    def refuse(self) -> None:
        """Cut all, and refuse new ones: the server is away."""
        _close(self._listener)
        self.cut()

    def accept(self) -> None:
        """Take :meth:`refuse` back."""
        self._listener = self._listening(self.port)

    def _listening(self, port: int) -> socket.socket:
        listener = socket.create_server((LOOPBACK, port))
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        return listener

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _reset(client)
                continue
            with self._changed:
                self._pairs.add((client, server))
            self._start(client, server, towards_client=False)
            self._start(server, client, towards_client=True)

    def _start(self, source: socket.socket, sink: socket.socket, *, towards_client: bool) -> None:
        arguments = (source, sink, towards_client)
        threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, towards_client: bool) -> None:
        pair = (sink, source) if towards_client else (source, sink)
        with suppress(OSError):
            while data := source.recv(65536):
                with self._changed:
                    while self._mode is Mode.STALL and pair in self._pairs:
                        self._changed.wait()
                    lose = self._mode is Mode.LOSE_REPLIES and towards_client
                if lose:
                    break
                sink.sendall(data)
            else:
                sink.shutdown(socket.SHUT_WR)
                return
        with self._changed:
            self._pairs.discard(pair)
        for end in pair:
            _reset(end)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    _close(end)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads or accepts
    end.close()
