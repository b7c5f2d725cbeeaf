# SPDX-License-Identifier: Apache-2.0
"""What the agent's own processes take of the host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import psutil

from exporters.gpuscape.agent_metrics import ProgramUse


def program_uses(reader: int | None) -> Mapping[str, ProgramUse]:
    """Of the agent, and of its device reader by process id; one that ended is left out."""
    pids = {"agent": os.getpid()} | ({} if reader is None else {"reader": reader})
    found = {}
    for program, pid in pids.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                found[program] = ProgramUse(
                    cpu_seconds=times.user + times.system,
                    resident_bytes=process.memory_info().rss,
                )
    return found
