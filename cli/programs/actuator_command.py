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
  {"verb":"state","v":2}      the open change, and the last outcome
  {"verb":"use","v":2}        the programs that have GPUs open; changes nothing
  {"verb":"apply","v":2,...}  bring GPUs to their desired layouts; the answer has the outcome
  {"verb":"restore","v":2,"change":"ID"}  end the change that is open or stuck

\b
SIGTERM and SIGINT end it, after the running change. While an actuator runs, gpuscape mig apply and
selftest are refused. Exit codes: 0 ended by a signal, 2 bad input, 3 another actuator has the
socket or the journal.""",
)
@options.program_settings(ACTUATOR_SETTINGS)
def command(load: Callable[[], ActuatorSettings]) -> None:
    """Carry out MIG changes that the agent requests on a socket; it has no network and no token.

    Every client of the socket can decide how GPUs are divided. Only the actuator's own user and
    root may connect unless peers are named; the kernel reports the client's user.

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
            supervised(source, settings),
            lambda asker: gpu_users(
                Path(source.host_root),
                simulated=simulated,
                asker=asker,
                reset=settings.mig_reset,
                pod_uid=settings.pod_uid,
            ),
        )
