# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout resume``: MIG changes begin again."""

from __future__ import annotations

import click

from cli import options, terminal
from cli.mig.cluster.coordinator_notes import namespace_option
from cli.mig.rollout.coordinator_switch import switch_coordinator
from cli.options import Load


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout resume
  gpuscape mig rollout resume --after-failures     go on where failures stopped a rollout

\b
With --after-failures the coordinator forgets how changes ended so far: rollouts that failures have
stopped go on, with a canary of their own again."""
)
@click.option(
    "--after-failures", is_flag=True, help="Let rollouts that failures have stopped go on as well."
)
@namespace_option
@options.settings("kubeconfig")
def command(load: Load, namespace: str, after_failures: bool) -> None:
    """Have MIG changes begin again after a pause, or after failures."""
    switch_coordinator(load().kubeconfig, namespace, paused=False, forget=after_failures)
    terminal.note("Resumed.")
