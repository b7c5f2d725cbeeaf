# SPDX-License-Identifier: Apache-2.0
"""Limits of the extender's server on its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from web import connection_limits
from web.messages import ConnectionLimits

_OWN_DESCRIPTORS: Final = 32
"""Kept free of clients. 7 are open before the API server answers; watches, Events and files being
read take the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderLimits(ConnectionLimits):
    """Limits of a server with a thread for each place; a scheduler keeps one or two.

    Who got no place in ``queue_seconds`` gets one of the last ones, for a probe, or to show that it
    is a scheduler's. Else its request for scores is answered with 503.
    """

    connections: int = 64
    queue_seconds: float = 0.25
    idle_seconds: float = 120.0
    """Longer than the 90 s of Go's clients, so that none writes while we close."""
    body_seconds: float = 2.0
    """For a whole body to arrive: more than any scheduler should be configured to wait."""
    answer_seconds: float = 5.0
    """For a client to take an answer: meanwhile the connection makes room for no other."""

    @property
    def kept(self) -> int:
        """Places, out of ``connections``, for those whose time in the queue is over."""
        return max(1, self.connections // 8)


def limits_within(descriptors: int | None) -> ExtenderLimits:
    """Limits that leave the extender the file descriptors that it needs; None: no limit on them."""
    usual = ExtenderLimits()
    if descriptors is None:
        return usual
    served, waiting = connection_limits.shares(
        descriptors - _OWN_DESCRIPTORS, served=usual.connections, waiting=usual.waiting
    )
    return ExtenderLimits(connections=served, waiting=waiting)
