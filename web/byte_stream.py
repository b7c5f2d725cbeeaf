# SPDX-License-Identifier: Apache-2.0
"""Bytes of a connection: in an event loop or in a thread, plain or secured by TLS.

The methods are coroutines. In a thread's stream they wait in the kernel and never for an event
loop, so the thread runs them by itself. What is served is therefore written once for both.

asyncio's own TLS is not used: it keeps 256 KiB for each connection until the garbage collector
comes by, drops the alert that names the reason to a client, and reports an answer as sent that
is still here.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import time
from abc import ABC, abstractmethod
from asyncio import StreamReader, StreamWriter
from typing import Final

from web.refusals import host_of

AT_ONCE_BYTES: Final = 16 << 10
"""Bytes that are read at once: a record of TLS holds no more."""
_IN_THREAD_BYTES: Final = 64 << 10
"""Bytes that a thread reads at once: bodies may be large."""


class ByteStream(ABC):
    """A connection. All methods raise OSError where it broke, TimeoutError past ``until``.

    ``until`` is in seconds of the monotonic clock.
    """

    client = ""
    """The other end's host; empty where it went before it was served."""

    async def open(self) -> None:  # noqa: B027  # most have nothing to do
        """Get ready, once, before all else."""

    @abstractmethod
    async def receive(self, until: float) -> bytes:
        """The next bytes, as soon as there are any; none when the client has ended its side."""

    @abstractmethod
    async def send(self, data: bytes | memoryview, until: float) -> None:
        """Send, and wait until the kernel has taken all of it."""

    @abstractmethod
    def send_at_once(self, data: bytes) -> None:
        """Send the bytes that the kernel takes now; the connection is to be aborted then."""

    async def end(self, until: float) -> None:  # noqa: B027  # TLS alone has one
        """Announce the end to the client, where the protocol has a message for it."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once: what the kernel has not taken is lost."""


class LoopStream(ByteStream):
    """A plain connection in the running event loop."""

    _reader: StreamReader
    _writer: StreamWriter

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._is_open = False

    async def open(self) -> None:
        """See :class:`ByteStream`."""
        self._reader, self._writer = await asyncio.open_connection(
            sock=self._socket, limit=AT_ONCE_BYTES
        )
        self._is_open = True
        # so that drain() waits until the client took all, and a deadline around it holds
        self._writer.transport.set_write_buffer_limits(high=0)
        self.client = host_of(self._writer.get_extra_info("peername"))

    async def receive(self, until: float) -> bytes:
        """See :class:`ByteStream`."""
        async with asyncio.timeout_at(until):
            return await self._reader.read(AT_ONCE_BYTES)

    async def send(self, data: bytes | memoryview, until: float) -> None:
        """See :class:`ByteStream`."""
        self._writer.write(data)
        async with asyncio.timeout_at(until):
            await self._writer.drain()

    def send_at_once(self, data: bytes) -> None:
        """See :class:`ByteStream`."""
        self._writer.write(data)

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        if self._is_open:
            self._writer.transport.abort()
        else:
            self._socket.close()


class ThreadStream(ByteStream):
    """A plain connection in a thread of its own."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._is_receiving = False
        with contextlib.suppress(OSError):  # it may have gone already
            self.client = host_of(connection.getpeername())

    async def receive(self, until: float) -> bytes:
        """See :class:`ByteStream`."""
        self._wait_until(until)
        self._is_receiving = True
        try:
            return self._socket.recv(_IN_THREAD_BYTES)
        finally:
            self._is_receiving = False

    async def send(self, data: bytes | memoryview, until: float) -> None:
        """See :class:`ByteStream`."""
        self._wait_until(until)
        self._socket.sendall(data)

    def send_at_once(self, data: bytes) -> None:
        """See :class:`ByteStream`."""
        self._socket.send(data, socket.MSG_DONTWAIT)

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        self._socket.close()

    def cut(self) -> None:
        """Have the thread find the connection ended; for any other thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def awaits_client(self) -> bool:
        """Whether the thread waits for the client, and no sent byte is unread; for any thread."""
        return self._is_receiving and not _has_bytes(self._socket)

    def _wait_until(self, until: float) -> None:
        """Let the next call wait until then: a socket's own timeout starts with each."""
        left_seconds = until - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(left_seconds)


class TlsByteStream(ByteStream):
    """A connection that speaks TLS from its first byte on, over a plain stream that is open."""

    def __init__(self, raw: ByteStream, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self, until: float) -> ssl.SSLObject:
        """Shake hands. Raises ssl.SSLError where that fails; TLS sends the client an alert then."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not await self._feed(until):
                    raise ConnectionResetError("it ended before the handshake did") from None
            except ssl.SSLError:
                await self._flush(until)
                raise
            else:
                await self._flush(until)
                return self._tls

    async def receive(self, until: float) -> bytes:
        """Receive decrypted bytes; an end without TLS' own close counts as an end too."""
        while True:
            try:
                return self._tls.read(AT_ONCE_BYTES)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                if not await self._feed(until):
                    return b""

    async def send(self, data: bytes | memoryview, until: float) -> None:
        """Encrypt and send, and wait until the kernel has taken all of it."""
        self._tls.write(data)
        await self._flush(until)

    def send_at_once(self, data: bytes) -> None:
        """Encrypt, and send what the kernel takes now; the connection is to be aborted then."""
        self._tls.write(data)
        self._raw.send_at_once(self._outgoing.read())

    async def end(self, until: float) -> None:
        """Send TLS's close_notify; without it a client takes the end for an attack.

        The client's own is not waited for.
        """
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush(until)

    def abort(self) -> None:
        """See :class:`ByteStream`."""
        self._raw.abort()

    async def _feed(self, until: float) -> bool:
        """Give TLS the client's next bytes; False when the client has ended its side."""
        await self._flush(until)
        if more := await self._raw.receive(until):
            self._incoming.write(more)
        return bool(more)

    async def _flush(self, until: float) -> None:
        if self._outgoing.pending:
            await self._raw.send(self._outgoing.read(), until)


def _has_bytes(connection: socket.socket) -> bool:
    """Whether bytes, or the client's end, can be read from the socket; False if it is closed."""
    poll = select.poll()
    with contextlib.suppress(OSError, ValueError):
        poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
