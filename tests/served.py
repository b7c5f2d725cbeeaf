# SPDX-License-Identifier: Apache-2.0
"""Servers of Python's own library that answer while a test goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from socketserver import BaseServer


@contextlib.contextmanager
def answering(server: BaseServer) -> Iterator[None]:
    """Have it answer, from a thread of its own, while the block lasts; it is closed then."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
