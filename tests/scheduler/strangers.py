# SPDX-License-Identifier: Apache-2.0
"""Clients of the extender that show no certificate, and stay."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
from collections.abc import Callable, Iterator

from tests.agent.agent_process import SOON
from tests.scheduler.extenders import HOST

Stranger = Callable[[int, ssl.SSLContext], socket.socket]
"""Connects to a port, with a context that trusts the server there, and stays."""


def silent(port: int, _trusting: ssl.SSLContext) -> socket.socket:
    """It sends nothing."""
    return socket.create_connection((HOST, port), SOON)


@functools.cache
def hello() -> bytes:
    """The first message of a handshake."""
    sent = ssl.MemoryBIO()
    handshake = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=HOST)
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return sent.read()


def hanging(port: int, trusting: ssl.SSLContext) -> socket.socket:
    """It begins a handshake and does not go on."""
    with _open_unless_it_fails(silent(port, trusting)) as connection:
        connection.sendall(hello())
        return connection


def idle(port: int, trusting: ssl.SSLContext) -> socket.socket:
    """It ends its handshake, and asks for nothing."""
    return trusting.wrap_socket(silent(port, trusting), server_hostname=HOST)


def probing(port: int, trusting: ssl.SSLContext) -> socket.socket:
    """It is served a probe, as everybody is."""
    with _open_unless_it_fails(idle(port, trusting)) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.recv(1 << 10)
        return connection


@contextlib.contextmanager
def _open_unless_it_fails(connection: socket.socket) -> Iterator[socket.socket]:
    """It stays open after the block; one that had to make room within it is closed."""
    try:
        yield connection
    except OSError:
        connection.close()
        raise


STRANGERS = (silent, hanging, idle, probing)
