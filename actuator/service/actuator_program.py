# SPDX-License-Identifier: Apache-2.0
"""The actuator as a process: leaves the network, opens its socket, obeys signals."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
from collections.abc import Callable
from typing import Final

from actuator.journal_owner import owned
from actuator.service.actuator_server import ActuatorServer
from actuator.service.actuator_settings import ActuatorSettings
from actuator.service.socket_place import listening_unix_socket
from actuator.service.transactions import RunChange
from api.actuator.actuator_messages import UseAnswer
from base.process import process_signals

log = logging.getLogger(__name__)

_ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET. Source: the kernel's include/uapi/linux/sched.h."""


def run(
    settings: ActuatorSettings, run_change: RunChange, users: Callable[[int], UseAnswer]
) -> None:
    """Serve until SIGTERM or SIGINT, for the main thread. ``users`` as of ActuatorServer.

    Raises BadInput and JournalUnusable where the folders of socket and journal are not as they must
    be, and Transient where another actuator has them.
    """
    why_not = _leave_network()
    if why_not is not None:
        log.warning("network not left", extra={"why": why_not})
    own = {0, os.geteuid()}
    peers = own | set(settings.peers)
    with (
        owned(settings.journal),
        listening_unix_socket(settings.socket, open_to_all=bool(peers - own)) as place,
        contextlib.closing(
            ActuatorServer(
                place,
                run_change,
                settings.journal,
                peers,
                users=users,
                sentinel=settings.sentinel,
            )
        ) as server,
    ):

        def take(number: signal.Signals) -> None:
            if number in _ENDING:
                server.stop(settings.stop_deadline_seconds)

        with process_signals.delivered_signals(take):
            log.info("actuator started", extra={"socket": str(settings.socket)})
            if server.serve():
                log.info("actuator stopped")
            else:
                log.warning("actuator stopped in the middle of a MIG change")


def _leave_network() -> str | None:
    """Move this process, which needs no network, into an empty network namespace of its own.

    Threads that run already stay where they are, so call it first; Unix sockets with a path, and
    processes that start later, are not disturbed or come along. None, or why it cannot be left:
    it takes CAP_SYS_ADMIN. Source: unshare(2), network_namespaces(7).
    """
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(_NEW_NETWORK) == 0:
        return None
    return os.strerror(ctypes.get_errno())
