# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout undo``: restores the desired layouts from before the last start."""

from __future__ import annotations

import click

from cli import options
from cli.mig.rollout.chosen_nodes import NodeChoice, chosen_nodes, run_rollout
from cli.mig.rollout.node_writes import to_layout_before
from cli.options import Load


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout undo -l pool=a100
  gpuscape mig rollout undo --node gpu-7 --dry-run

\b
A node that has changed already changes back, when it gets a slot and its pods allow it. If no
layout was desired before, the annotation is removed and the GPUs stay as they are. Nodes whose
layout no rollout has written are left out; a second undo does nothing.

\b
Exit codes: as of `gpuscape mig rollout start`."""
)
@chosen_nodes
@options.output("table", "json", "yaml")
@options.settings("kubeconfig")
def command(
    load: Load,
    choice: NodeChoice,
    output: str,
) -> None:
    """Restore the desired layouts of the chosen Nodes from before the last start."""
    run_rollout(load().kubeconfig, to_layout_before, choice, output)
