# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout start`` and ``undo``: write desired MIG layouts to Nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cli import options
from cli.mig.cluster.cluster_nodes import timeout_option
from cli.mig.rollout.chosen_nodes import NodeChoice, chosen_nodes, run_rollout
from cli.mig.rollout.node_writes import to_layout, to_layout_before
from cli.options import Load
from fleet.mig_node import DrainMode


def _writing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that write to Nodes, as :func:`run_rollout` takes them."""
    for add in (
        options.settings("kubeconfig"),
        options.output("table", "json", "yaml"),
        timeout_option,
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option(
            "--dry-run", is_flag=True, help="Have the API server try each write; write nothing."
        ),
        chosen_nodes,
    ):
        function = add(function)
    return function


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout start all-balanced -l pool=a100 --dry-run
  gpuscape mig rollout start all-balanced -l pool=a100,tier!=prod --drain evict
  gpuscape mig rollout start '{"0-3": {"1g.10gb": 7}}' --node gpu-7 --yes

\b
It writes gpuscape.io/mig-layout to each chosen Node, and the previous value to
gpuscape.io/mig-layout-before, for undo. LAYOUT is the name of a configuration, or the layout
itself (docs/mig.md, "A layout in an annotation"). Each node's agent evaluates it on its own GPUs:
it refuses an unknown profile, and `gpuscape mig nodes` shows that. With --dry-run the API server
checks every write, admission policies included, and writes nothing; `gpuscape mig rollout plan`
shows what the rollout would do.

\b
Exit codes:
  0  written, or nothing was to be written
  2  bad input; no such node
  4  the cluster could not be read
  5  the question was answered with no: nothing was written
  7  some Nodes could not be written; run it again"""
)
@click.argument("layout")
@click.option(
    "--drain",
    type=click.Choice([mode.value for mode in DrainMode]),
    help="How pods leave: write gpuscape.io/drain as well.  [default: as the Node or the"
    " coordinator has it]",
)
@_writing
def start_rollout(
    load: Load, layout: str, drain: str | None, choice: NodeChoice, **writing: Any
) -> None:
    """Write LAYOUT to the chosen Nodes as their desired layout."""
    from mig.configs.layout_annotation import parse_layout_annotation  # the parser loads slowly

    parse_layout_annotation(layout, "LAYOUT")
    run_rollout(load().kubeconfig, to_layout(layout, drain), choice, **writing)


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
@_writing
def undo_rollout(load: Load, choice: NodeChoice, **writing: Any) -> None:
    """Restore the desired layouts of the chosen Nodes from before the last start."""
    run_rollout(load().kubeconfig, to_layout_before, choice, **writing)
