# SPDX-License-Identifier: Apache-2.0
"""A way into a network namespace: ``python -m tests.node.relay PORT PROCESS HOST:PORT``.

It listens on loopback of the network that it is started in, and connects to HOST:PORT from the
network of PROCESS. A socket stays in the network that it was made in: setns(2). ``@FILE`` in the
place of HOST:PORT names a file that says it, read anew for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from pathlib import Path
from typing import Final

from tests.controlplane.components import LOOPBACK
from tests.node.machine import NEW_NETWORK

WAITING: Final = 512
"""Connections that may wait to be taken: a fleet's clients come at once."""
CHUNK: Final = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


def main(port: str, process: str, to: str) -> None:
    """Listen, move to the other network, and pass on what comes."""
    listener = socket.create_server((LOOPBACK, int(port)), backlog=WAITING)
    with open(f"/proc/{process}/ns/net") as network:  # noqa: PTH123 (for its descriptor)
        if _libc.setns(network.fileno(), NEW_NETWORK):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    asyncio.run(pass_on(listener, to))


async def pass_on(listener: socket.socket, to: str) -> None:
    """Have each connection go on to ``to``, until this is cancelled."""

    async def serve(near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        try:
            address = Path(to[1:]).read_text(encoding="utf-8") if to.startswith("@") else to
            host, _, port = address.rpartition(":")
            far, to_far = await asyncio.open_connection(host, int(port))
        except (OSError, ValueError):
            to_near.close()
            return
        await asyncio.gather(_copy(near, to_far), _copy(far, to_near))
        for writer in (to_far, to_near):
            writer.close()

    server = await asyncio.start_server(serve, sock=listener, backlog=WAITING)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, and then its end."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        writer.transport.abort()  # a connection that was cut is cut on the other side too
    else:
        with contextlib.suppress(OSError):
            writer.write_eof()


if __name__ == "__main__":
    main(*sys.argv[1:])
