# SPDX-License-Identifier: Apache-2.0
"""Names of programs by process id, of this machine's processes alone."""

from __future__ import annotations

from collections.abc import Callable

from agent.settings.agent_settings import AgentSettings
from discovery.host.device_files import process_name


def program_name(settings: AgentSettings) -> Callable[[int], str]:
    """A program's name by its pid; empty where it has none, as on a simulated machine.

    Process ids are the driver's, which gives them in the PID namespace of whoever asks.
    """
    if settings.simulate is not None:
        return lambda _pid: ""  # this machine's process of that number is not the simulated one
    return process_name
