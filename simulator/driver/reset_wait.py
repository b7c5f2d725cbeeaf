# SPDX-License-Identifier: Apache-2.0
"""The wait of a call that resets GPUs, until they are there again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.state import gpu_reset
from simulator.state.machine_state import MachineState

POLL_SECONDS = 0.02
"""Seconds between two checks whether a reset has ended."""


def wait_for_resets(
    bus_ids: Collection[str], state: Callable[[], MachineState], has_gone: Callable[[], bool]
) -> None:
    """Return when no reset of these GPUs runs.

    ``state`` gives the settled state by the clock that the end of a reset is computed from, and no
    other clock is read: one that a test has set may stand still or jump. Raises Nvml: UNKNOWN where
    the caller has gone; the reset goes on without it.
    """
    while any(gpu_reset.is_resetting(state(), bus_id) for bus_id in bus_ids):
        if has_gone():
            raise Nvml(pynvml.NVML_ERROR_UNKNOWN)
        time.sleep(POLL_SECONDS)
