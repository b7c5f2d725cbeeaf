"""Where servers listen."""

from __future__ import annotations

import contextlib
import socket

import pytest

from web.address import Address, listening


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_answers_are_sent_at_once(host: str) -> None:
    """Without waiting for an acknowledgement of what went before."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(listening(Address(host=host, port=0)))
        port = listener.getsockname()[1]
        opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        accepted = opened.enter_context(listener.accept()[0])
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
