# SPDX-License-Identifier: Apache-2.0
"""Logs which GPUs do not answer, whenever that changes."""

from __future__ import annotations

import logging

from base.log_once import LogOnce
from discovery.model import GpuState, NodeSnapshot

log = logging.getLogger(__name__)


class SilentGpus:
    """The GPUs that did not answer when they were logged last."""

    def __init__(self) -> None:
        self._logged = LogOnce()

    def log_changes(self, snapshot: NodeSnapshot) -> None:
        """Log which GPUs do not answer, whenever that changes."""
        silent = {g.bus_id: g.state for g in snapshot.gpus if g.state is not GpuState.PRESENT}
        if silent:
            if self._logged.is_new(silent):
                named = ", ".join(f"{bus_id} {state}" for bus_id, state in silent.items())
                log.warning("GPUs not responding", extra={"gpus": named})
        elif self._logged.clear():
            log.info("all GPUs responding")
