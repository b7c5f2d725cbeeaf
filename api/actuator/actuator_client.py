# SPDX-License-Identifier: Apache-2.0
"""Asks the actuator over its socket."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from api.actuator.actuator_messages import (
    MOST_ANSWER_BYTES,
    MOST_REQUEST_BYTES,
    ActuatorAnswer,
    ActuatorRequest,
    StateRequest,
    decode_answer,
    encode_message,
)
from api.names import ACTUATOR_SOCKET
from base.errors import BadInput, Transient
from base.local_socket import NoAnswer, exchange

SOCKET: Final = Path(ACTUATOR_SOCKET)
STATE_SECONDS: Final = 10.0
"""Time for the answer to a request that changes nothing."""


def ask_actuator(
    socket: Path, request: ActuatorRequest, *, timeout_seconds: float | None = None
) -> ActuatorAnswer:
    """The actuator's answer. A change is answered when it has ended: give it minutes.

    Raises NoAnswer where there is none in time; the change goes on then, and the same request is
    answered with its end later. Raises BadInput for a request that is too large, and Transient for
    an answer that is none.
    """
    line = encode_message(request)
    if len(line) >= MOST_REQUEST_BYTES:
        raise BadInput(f"a request of {len(line)} bytes is too large for the actuator")
    if timeout_seconds is None:
        if not isinstance(request, StateRequest):
            raise BadInput("a change needs a timeout of its own")
        timeout_seconds = STATE_SECONDS
    answer = exchange(socket, line, timeout_seconds=timeout_seconds, most_bytes=MOST_ANSWER_BYTES)
    try:
        return decode_answer(answer)
    except BadInput as error:
        raise Transient(f"{socket}: {error}") from error


__all__ = ["SOCKET", "STATE_SECONDS", "NoAnswer", "ask_actuator"]
