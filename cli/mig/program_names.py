# SPDX-License-Identifier: Apache-2.0
"""Names of programs by process id, of this machine's processes alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.settings.agent_settings import AgentSettings


def program_name(settings: AgentSettings, proc: Path = Path("/proc")) -> Callable[[int], str]:
    """A program's name by its pid; empty where it has none, as on a simulated machine.

    Process ids are the driver's, which gives them in the PID namespace of whoever asks.
    Source: proc(5), /proc/pid/comm.
    """

    def name_of(pid: int) -> str:
        if settings.simulate is not None:
            return ""  # a process of that number here is another one
        try:
            return (proc / str(pid) / "comm").read_text("utf-8", errors="replace").strip()
        except OSError:
            return ""

    return name_of
