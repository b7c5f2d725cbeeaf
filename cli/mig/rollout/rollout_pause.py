# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout pause``: no further Node begins a MIG change."""

from __future__ import annotations

import click

from cli import options, terminal
from cli.mig.cluster.coordinator_notes import namespace_option
from cli.mig.rollout.coordinator_switch import switch_coordinator
from cli.options import Load


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout pause
  gpuscape mig rollout resume

\b
It writes gpuscape.io/mig-paused to the coordinator's Lease, so it outlives every restart. A node
that has begun goes on to its end."""
)
@namespace_option
@options.settings("kubeconfig")
def command(load: Load, namespace: str) -> None:
    """Have no further Node of the cluster begin a MIG change."""
    switch_coordinator(load().kubeconfig, namespace, paused=True)
    terminal.note("Paused: no further node begins. Those that have begun go on to their end.")
