# SPDX-License-Identifier: Apache-2.0
"""h11 as the client that reads what our servers send: it takes nothing that the RFCs forbid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import h11


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """An answer as h11 reads it."""

    status: int
    headers: dict[str, str]
    content: bytes
    interim: tuple[int, ...] = ()
    """Statuses of the interim answers before it."""


def answers(received: bytes, methods: Sequence[str]) -> list[ReadAnswer]:
    """The answers in all that a connection received, one for each method of a request at most.

    Raises h11.RemoteProtocolError for what is no HTTP, and AssertionError for bytes that belong to
    no answer, or for an answer after one that closes the connection.
    """
    state = h11.Connection(h11.CLIENT)
    state.receive_data(received)
    state.receive_data(b"")
    read = []
    for method in methods:
        state.send(h11.Request(method=method, target="/", headers=[("Host", "node")]))
        state.send(h11.EndOfMessage())
        read.append(_next_answer(state))
        if state.their_state is not h11.DONE or state.our_state is not h11.DONE:
            break
        state.start_next_cycle()
        if state.trailing_data == (b"", True):
            break
    assert state.trailing_data[0] == b""
    return read


def _next_answer(state: h11.Connection) -> ReadAnswer:
    head, content, interim = None, b"", []
    while not isinstance(event := state.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.InformationalResponse | h11.Response | h11.Data), event
        if isinstance(event, h11.InformationalResponse):
            interim.append(event.status_code)
        elif isinstance(event, h11.Response):
            head = event
        else:
            content += event.data
    assert head is not None
    names = [name.decode() for name, _ in head.headers]
    assert len(set(names)) == len(names)
    return ReadAnswer(
        status=head.status_code,
        headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
        content=content,
        interim=tuple(interim),
    )
