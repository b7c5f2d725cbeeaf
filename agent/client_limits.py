# SPDX-License-Identifier: Apache-2.0
"""How many clients the agent's servers take, by the file descriptors that the process may have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from web.connection_limits import shares
from web.messages import ServerLimits

_OWN_DESCRIPTORS: Final = 48
"""Kept free of clients. Some 15 are open at rest; a device reader takes 8 while it starts and 2
from then on, eight that are stuck in the driver among them; connections to API server and
kubelet, the kernel log and files being read take the rest."""


def client_limits(descriptors: int | None) -> tuple[ServerLimits, ServerLimits]:
    """Limits of the servers of metrics and of probes: a third is for the probes.

    No number of clients of one takes a descriptor of the other, or of the agent itself.
    """
    if descriptors is None:
        return ServerLimits(), ServerLimits()
    free = descriptors - _OWN_DESCRIPTORS
    return _within(free - free // 3), _within(free // 3)


def _within(connections: int) -> ServerLimits:
    """Limits with so many connections at most."""
    limits = ServerLimits()
    served, waiting = shares(connections, served=limits.connections, waiting=limits.waiting)
    return replace(limits, connections=served, waiting=waiting)
