# SPDX-License-Identifier: Apache-2.0
"""The actuator as a process: leaves the network, opens its socket, obeys signals."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable

from actuator.journal_owner import owned
from actuator.service.actuator_server import ActuatorServer
from actuator.service.actuator_settings import ActuatorSettings
from actuator.service.network import leave_network
from actuator.service.socket_place import listening_unix_socket
from actuator.service.transactions import RunChange
from api.actuator.actuator_messages import UseAnswer
from base.process import process_signals

log = logging.getLogger(__name__)

_ENDING = frozenset({signal.SIGTERM, signal.SIGINT})


def run(
    settings: ActuatorSettings, run_change: RunChange, users: Callable[[int], UseAnswer]
) -> None:
    """Serve until SIGTERM or SIGINT, for the main thread. ``users`` as of ActuatorServer.

    Raises BadInput and JournalUnusable where the folders of socket and journal are not as they must
    be, and Transient where another actuator has them.
    """
    why_not = leave_network()
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
