# SPDX-License-Identifier: Apache-2.0
"""The two ends of one connection's bytes: plain, or secured by TLS.

asyncio's own TLS is not used: it keeps 256 KiB for each connection until the garbage collector
comes by, drops the alert that names the reason to a client, and reports an answer as sent that
is still here.
"""

from __future__ import annotations

import contextlib
import ssl
from asyncio import StreamReader, StreamWriter

from web.refusals import host_of

AT_ONCE_BYTES = 16 << 10
"""Bytes that are read at once: a record of TLS holds no more."""


class ByteStream:
    """A plain connection. All methods raise OSError where it broke."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        # so that drain() waits until the client took all, and a deadline around it holds
        writer.transport.set_write_buffer_limits(high=0)
        self._reader = reader
        self._writer = writer
        self.client = host_of(writer.get_extra_info("peername"))
        """The other end's host; empty where it went before it was served."""

    async def open(self) -> ssl.SSLObject | None:
        """Open the stream; returns the TLS object of the connection, None without TLS."""
        return None

    async def receive(self) -> bytes:
        """The next bytes, as soon as there are any; none when the client has ended its side."""
        return await self._reader.read(AT_ONCE_BYTES)

    async def send(self, data: bytes | memoryview) -> None:
        """Send, and wait until the kernel has taken all of it."""
        self._writer.write(data)
        await self._writer.drain()

    def send_at_once(self, data: bytes) -> None:
        """Send the bytes that the kernel takes now; the connection is to be aborted then."""
        self._writer.write(data)

    async def end(self) -> None:
        """Announce the end to the client, where the protocol has a message for it."""

    def abort(self) -> None:
        """Close at once: what the kernel has not taken is lost."""
        self._writer.transport.abort()


class TlsByteStream(ByteStream):
    """A connection that speaks TLS from its first byte on."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, context: ssl.SSLContext) -> None:
        super().__init__(reader, writer)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def open(self) -> ssl.SSLObject | None:
        """Shake hands. Raises ssl.SSLError where that fails; TLS sends the client an alert then."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                if not await self._feed():
                    raise ConnectionResetError("it ended before the handshake did") from None
            except ssl.SSLError:
                await self._flush()
                raise
            else:
                await self._flush()
                return self._tls

    async def receive(self) -> bytes:
        """Receive decrypted bytes; an end without TLS' own close counts as an end too."""
        while True:
            try:
                return self._tls.read(AT_ONCE_BYTES)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                if not await self._feed():
                    return b""

    async def send(self, data: bytes | memoryview) -> None:
        """Encrypt and send, and wait until the kernel has taken all of it."""
        self._tls.write(data)
        await self._flush()

    def send_at_once(self, data: bytes) -> None:
        """Encrypt, and send what the kernel takes now; the connection is to be aborted then."""
        self._tls.write(data)
        super().send_at_once(self._outgoing.read())

    async def end(self) -> None:
        """Send TLS's close_notify; without it a client takes the end for an attack.

        The client's own is not waited for.
        """
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        await self._flush()

    async def _feed(self) -> bool:
        """Give TLS the client's next bytes; False when the client has ended its side."""
        await self._flush()
        if more := await self._reader.read(AT_ONCE_BYTES):
            self._incoming.write(more)
        return bool(more)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().send(self._outgoing.read())
