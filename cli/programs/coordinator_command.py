# SPDX-License-Identifier: Apache-2.0
"""``gpuscape coordinator``: settles the settings and hands over to the coordinator."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from cli import options
from fleet.coordinator_settings import COORDINATOR_SETTINGS, CoordinatorSettings


@click.command(
    cls=options.BySubject,
    epilog="""\b
Examples:
  gpuscape coordinator                   in a pod, with its account's token
  gpuscape coordinator --slots 3 --window 'mon-fri 22:00-05:00'
  kubectl -n gpuscape annotate lease coordinator gpuscape.io/mig-paused=true
      no further change begins; remove the annotation to go on
  kubectl -n gpuscape annotate lease coordinator gpuscape.io/mig-rollouts-
      rollouts that were stopped after failures go on

SIGTERM and SIGINT end it; another one goes on at once. Exit codes: 0 ended by a signal, 2 bad
input.""",
)
@options.program_settings(COORDINATOR_SETTINGS)
def command(load: Callable[[], CoordinatorSettings]) -> None:
    """Let a cluster's nodes change their MIG layouts, a few at a time.

    Agents in enforce mode ask for a permit on their Nodes. The coordinator waits until nobody uses
    what would change, cordons the node, looks again, lets the agent go, restarts the device plugin,
    and undoes what it did. Of several coordinators one acts; any other can go on at any point.

    Each option can stand in the environment and in a settings file too; flags win over the
    environment, the environment over the file. A name that is not known is an error.
    """
    settings = load()
    from cli.program_log import begin_log

    begin_log(settings.log_level, settings.log_format)
    from fleet.coordinator_program import run

    sys.exit(run(settings))
