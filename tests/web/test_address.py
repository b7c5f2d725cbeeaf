# SPDX-License-Identifier: Apache-2.0
"""Where servers listen."""

from __future__ import annotations

import contextlib
import socket

import pytest

from web.address import ADDRESS, Address, listening_socket


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_answers_are_sent_at_once(host: str) -> None:
    """Without waiting for an acknowledgement of what went before."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(listening_socket(Address(host=host, port=0)))
        port = listener.getsockname()[1]
        opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        accepted = opened.enter_context(listener.accept()[0])
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


ALL_INTERFACES = (
    *(":0", "[::]:0", "0.0.0.0:0", "[0:0:0:0:0:0:0:0]:0", "[::0]:0", "[::ffff:0.0.0.0]:0"),
)


@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("text", ALL_INTERFACES)
def test_an_address_of_all_interfaces_is_reached_over_both_families(text: str, client: str) -> None:
    with contextlib.closing(listening_socket(ADDRESS.read(text))) as listener:
        socket.create_connection((client, listener.getsockname()[1])).close()


@pytest.mark.parametrize(
    ("text", "other"),
    [("127.0.0.1:0", "::1"), ("[::1]:0", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.2")],
)
def test_an_address_of_one_interface_is_reached_there_alone(text: str, other: str) -> None:
    with contextlib.closing(listening_socket(ADDRESS.read(text))) as listener:
        port = listener.getsockname()[1]
        socket.create_connection((ADDRESS.read(text).host, port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((other, port))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":9400", "", 9400),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("node-a:80", "node-a", 80),
        ("[::1]:9400", "::1", 9400),
    ],
)
def test_an_address_is_host_and_port_and_shows_as_it_was_written(
    text: str, host: str, port: int
) -> None:
    address = ADDRESS.read(text)
    assert address == Address(host=host, port=port)
    assert str(address) == text


@pytest.mark.parametrize("text", ["9400", "node", ":65536", "::1:9400", "a b:1", ":", ":-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        ADDRESS.read(text)
