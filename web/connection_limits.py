# SPDX-License-Identifier: Apache-2.0
"""The number of connections that a program may hold, by its limit of file descriptors."""

from __future__ import annotations

import resource
from typing import Final

_LEAST: Final = 4
"""Connections of one server, however few descriptors there are."""


def descriptors() -> int | None:
    """Descriptors that this process may have; None without a limit."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def shares(connections: int, *, served: int, waiting: int) -> tuple[int, int]:
    """Connections that are served and that wait: at most these, and together ``connections``.

    Half of few are served.
    """
    connections = max(_LEAST, connections)
    served = min(served, connections // 2)
    return served, min(waiting, connections - served)
