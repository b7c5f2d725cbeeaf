# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of the agent's own processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import psutil

from exporters.gpuscape.agent_metrics import ProgramUse


def program_uses(reader: int | None) -> Mapping[str, ProgramUse]:
    """CPU time and memory of the agent and its device reader; a program that ended is left out.

    ``reader``: process id of the device reader; None where there is none.
    """
    pids = {"agent": os.getpid()} | ({} if reader is None else {"reader": reader})
    uses = {}
    for program, pid in pids.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                uses[program] = ProgramUse(
                    cpu_seconds=times.user + times.system,
                    resident_bytes=process.memory_info().rss,
                )
    return uses
