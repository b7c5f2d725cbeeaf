# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig why``: where the MIG layout of one Node stands, stage by stage, and why."""

from __future__ import annotations

import contextlib
from typing import Final

import click

from cli import options, terminal
from cli.mig.cluster.change_facts_reader import ChangeFactsReader
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.mig.cluster.coordinator_notes import namespace_option
from cli.mig.cluster.node_completion import complete_nodes
from cli.mig.cluster.stage_text import stage_table, stages_document, standing_notes
from cli.options import Load
from fleet.stages.layout_stages import layout_stages

_PROGRAM: Final = "gpuscape-mig-why"


@click.command(
    epilog="""\b
Examples:
  gpuscape mig why gpu-7
  gpuscape mig why gpu-7 -o json | jq -r '.stages[] | select(.state == "now") | .command'
  gpuscape mig why gpu-7 --exit-code       in a script: does it have its layout?

\b
Stages:
  desired      the annotation gpuscape.io/mig-layout or the label nvidia.com/mig.config is there
  evaluated    the node's agent has a plan, or the GPUs have the layout
  requested    the agent asks the coordinator for a permit
  slot         the coordinator gave the node one of its slots
  cordoned     no new pods come
  drained      no pod and no program uses what would be destroyed
  paused       parts of the GPU operator that keep GPUs open are paused; only for MIG modes
  changed      the actuator changed the GPUs
  verified     the layout was read back
  allocatable  the node offers the resources of the layout
  uncordoned   the node is as it was before, with its new layout

\b
States: done, now (the change stands here), ahead, not-needed, unknown (it is over, and nothing in
the cluster says any more whether it was needed). TOOK is the time since the stage before, for the
present stage until now. Times of a change that is over are those of Events, which a cluster keeps
for an hour; - where they are gone. Below the table: who is in the way, when the next attempt comes
if that is known, and the next command.

\b
It reads with your own rights, and writes nothing: get of the Node; list and watch of Nodes, of the
node's pods, of Leases and Deployments in the coordinator's namespace, and of Events in default; get
of the ConfigMap of the fleet policy. Where pods are to be evicted also PodDisruptionBudgets and the
pods' owners. Without one of these rights the stage says so, and all else is shown. How pods leave,
and when, is judged by the settings in the coordinator's Deployment, else by the defaults.

\b
Exit codes:
  0  shown
  1  with --exit-code: the node does not have its desired layout
  2  bad input, a node that is not there
  4  the cluster could not be read"""
)
@click.argument("node", metavar="NODE", shell_complete=complete_nodes)
@click.option("--exit-code", is_flag=True, help="End with 1 if the node lacks its layout.")
@namespace_option
@options.output("table", "json", "yaml")
@options.settings("kubeconfig")
def command(load: Load, node: str, exit_code: bool, namespace: str, output: str) -> None:
    """Show where the MIG layout of NODE stands, who is in the way, and the next command."""
    with contextlib.closing(kubeconfig_client(_PROGRAM, load().kubeconfig)) as api:
        reader = ChangeFactsReader(api, namespace)
        facts, now = reader.read(node), reader.now
    stages = layout_stages(facts, now)
    if output in ("json", "yaml"):
        terminal.print_data(stages_document(facts, stages, now), output)
    else:
        terminal.show_table(stage_table(stages))
        terminal.note("", *standing_notes(stages))
    if exit_code and facts.layout is not None and not facts.layout.is_settled:
        raise click.exceptions.Exit(1)
