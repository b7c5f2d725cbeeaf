# SPDX-License-Identifier: Apache-2.0
"""The wait of a call that resets GPUs, until they are there again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.state import gpu_reset
from simulator.state.state_file import StateFile

POLL_SECONDS = 0.02
"""Seconds between two checks whether a reset has ended."""


def wait_for_resets(
    file: StateFile,
    bus_ids: Collection[str],
    clock: Callable[[], float],
    has_gone: Callable[[], bool],
) -> None:
    """Return when no reset of these GPUs runs, by the machine's ``clock``, and note its end.

    Raises Nvml: UNKNOWN where the caller has gone; the reset goes on without it.
    """

    def settled() -> bool:
        state = gpu_reset.settled(file.read(), clock())
        return not any(gpu_reset.is_running(state, bus_id) for bus_id in bus_ids)

    if not any(gpu_reset.is_running(file.read(), bus_id) for bus_id in bus_ids):
        return
    while not settled():
        if has_gone():
            raise Nvml(pynvml.NVML_ERROR_UNKNOWN)
        time.sleep(POLL_SECONDS)
    file.edit(lambda state: gpu_reset.settled(state, clock()))
