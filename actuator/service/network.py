# SPDX-License-Identifier: Apache-2.0
"""Leaves the network: a process that changes hardware needs none."""

from __future__ import annotations

import ctypes
import os
from typing import Final

_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET. Source: the kernel's include/uapi/linux/sched.h."""


def leave_network() -> str | None:
    """Move this process into a network namespace of its own, which has nothing in it.

    Threads that run already stay where they are, so call it first; Unix sockets with a path, and
    processes that start later, are not disturbed or come along. None, or why it cannot be left:
    it takes CAP_SYS_ADMIN. Source: unshare(2), network_namespaces(7).
    """
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(_NEW_NETWORK) == 0:
        return None
    return os.strerror(ctypes.get_errno())
