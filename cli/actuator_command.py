# SPDX-License-Identifier: Apache-2.0
"""``gpuscape actuator``: settles the settings and hands over to the actuator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from actuator.service.actuator_settings import ACTUATOR_SETTINGS, ActuatorSettings
from cli import options


@click.command(
    cls=options.BySubject,
    epilog="""\b
Examples:
  gpuscape actuator                    in a container, with the host's /dev
  gpuscape actuator --peers 65532 --host-root /host
  gpuscape actuator --simulate machine/state.json --socket /tmp/mig/actuator.sock \\
      --journal /tmp/mig/journal

\b
Requests, one line of JSON each, with an answer of one line:
  {"verb":"state","v":1}      what is open, and how the last change ended
  {"verb":"use","v":1}        which programs have GPUs open; changes nothing
  {"verb":"apply","v":1,...}  bring GPUs to layouts; answered when that has ended
  {"verb":"restore","v":1,"change":"NAME"}  end what is open or held

\b
SIGTERM and SIGINT end it, after a change that runs. While it runs, gpuscape mig apply and selftest
are refused next to it. Exit codes: 0 ended by a signal, 2 bad input, 3 another actuator has the
socket or the journal.""",
)
@options.program_settings(ACTUATOR_SETTINGS)
def command(load: Callable[[], ActuatorSettings]) -> None:
    """Carry out MIG changes that the agent asks for on a socket; it has no network and no token.

    Whoever may connect to the socket decides how GPUs are divided: the socket is its user's and
    root's alone unless peers are named, and who asks is checked by the kernel's word.

    Each option can stand in the environment and in a settings file too; flags win over the
    environment, the environment over the file. A name that is not known is an error.
    """
    settings = load()
    from actuator.service.actuator_program import run
    from actuator.service.gpu_users import gpu_users
    from actuator.service.supervised_changes import supervised
    from agent.settings.agent_settings import AgentSettings
    from agent.settings.machine_from_settings import start_of
    from cli.program_log import begin_log

    begin_log(settings.log_level, settings.log_format)
    machine = AgentSettings(
        simulate=settings.simulate, host_root=settings.host_root, library=settings.library
    )
    with start_of(machine) as source:
        simulated = source.simulation is not None
        run(
            settings,
            supervised(source, settings.journal, settings.change_deadline_seconds),
            lambda asker: gpu_users(Path(source.host_root), simulated=simulated, asker=asker),
        )
