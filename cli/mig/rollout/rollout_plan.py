# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout plan``: what a rollout would do to the cluster; nothing is written."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from base.files import read_text
from base.text.safe_text import safe_line
from cli import options
from cli.failures import CommandFailure
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.mig.cluster.coordinator_notes import coordinator_notes, namespace_option
from cli.mig.rollout import node_writes
from cli.mig.rollout.chosen_nodes import PROGRAM, NodeChoice, chosen_nodes
from cli.mig.rollout.node_writes import LayoutWrite, to_layout
from cli.options import Load
from fleet.mig_node import DrainMode
from fleet.status.coordinator_view import read_coordinator
from kube.api import Api, Object
from kube.objects.node import Node
from kube.objects.typed_object import Metadata

_DEFAULT: Final = "default"


@click.command(
    epilog="""\b
Examples:
  gpuscape mig rollout plan all-1g.10gb -l pool=a100
  gpuscape mig rollout plan all-balanced -l pool=a100 --drain evict -o json
  gpuscape mig rollout plan '{"0-3": {"1g.10gb": 7}}' --node gpu-7 --exit-code

\b
Columns:
  FATE      changes; unchanged: it has, or offers, this already; left-out: nothing happens now,
            for a reason other than the layout; refused: its agent would refuse the layout;
            unknown: the result cannot be predicted
  NOW, THEN what the node offers, without nvidia.com/ in front
  PODS      in the way: if the Node desires this layout already, those in the agent's status, else
            those that have GPUs that change; at most: some of them may not be in the way
  EVICTION  what the coordinator would do if pods leave by eviction: all may leave, or none
  BY        agent: from the node's own agent; tables: from labels and gpuscape's tables of GPUs

\b
It reads with your own rights, and names what it could not read. It writes nothing: it tries each
write and each eviction as a dry run of the API server (--no-evictions leaves evictions out). A
configuration's name is looked up in the ConfigMap that the agents' DaemonSet mounts; --configs
gives the file if that cannot be read. Pods are evaluated one by one, on nodes as they are now; the
cluster may change before a rollout reaches a node (docs/mig-fleet.md).

\b
Exit codes:
  0  shown
  1  with --exit-code: something needs attention before the rollout begins
  2  bad input; no such node
  4  the cluster could not be read"""
)
@click.argument("layout")
@chosen_nodes
@click.option(
    "--drain",
    type=click.Choice([mode.value for mode in DrainMode]),
    help="As of gpuscape mig rollout start.",
)
@click.option(
    "--configs",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE|default",
    help="The agents' mig-config, or that they have none.  [default: as their DaemonSet has it]",
)
@click.option(
    "--evictions/--no-evictions",
    default=True,
    show_default=True,
    help="Have the API server judge each eviction in a dry run.",
)
@click.option("--exit-code", is_flag=True, help="End with 1 where something needs a look.")
@namespace_option
@options.output("table", "wide", "json", "yaml")
@options.settings("kubeconfig")
def command(
    load: Load,
    layout: str,
    choice: NodeChoice,
    drain: str | None,
    configs: Path | None,
    evictions: bool,
    exit_code: bool,
    namespace: str,
    output: str,
) -> None:
    """Show what a rollout of LAYOUT would do to the chosen Nodes and to the cluster."""
    from cli.mig.rollout import preview_text
    from forecast.cluster_picture import (
        ClusterPicture,
        PictureReader,
        read_agents_configs,
        try_evictions,
    )
    from forecast.coordinator_terms import coordinator_terms
    from forecast.leaving_pods import evictable_pods
    from forecast.node_preview import RolloutRequest
    from forecast.resource_forecast import LayoutMeaning
    from forecast.rollout_preview import rollout_preview, with_evictions
    from mig.configs.config_choice import LayoutChoice
    from mig.configs.layout_annotation import parse_layout_annotation
    from mig.configs.mig_config_file import parse_mig_configs

    desired = parse_layout_annotation(layout, "LAYOUT")
    file_text = None
    if configs is not None and str(configs) != _DEFAULT:
        file_text = read_text(configs, "configuration file")

    def is_chosen(node: Object) -> bool:
        return choice.has(Metadata.from_object(node["metadata"]))

    def read_meaning(api: Api, picture: ClusterPicture) -> LayoutMeaning:
        known, unknown = None, ""
        if file_text is not None:
            known = parse_mig_configs(file_text, str(configs), picture.agents.overlap)
        elif configs is None and isinstance(desired, str):
            known, unknown = read_agents_configs(api, picture.agents)
        return LayoutMeaning(choice=LayoutChoice(layout=desired, configs=known), unknown=unknown)

    with contextlib.closing(kubeconfig_client(PROGRAM, load().kubeconfig)) as api:
        picture = PictureReader(api).picture()
        choice.require_names({node["metadata"]["name"] for node in picture.nodes})
        plan_write = to_layout(layout, drain)
        writes = [plan_write(Node.from_object(node)) for node in picture.nodes if is_chosen(node)]
        choice.require_writes(writes)
        coordinator = coordinator_terms(picture.deployments)
        rollout = RolloutRequest(
            text=layout,
            meaning=read_meaning(api, picture),
            drain=drain or "",
            usual_drain=coordinator.drain,
            mode=picture.agents.mode,
            mode_change=picture.agents.mode_change,
        )
        preview = rollout_preview(
            picture, rollout, is_chosen, evictions=coordinator.evictions, now=time.time()
        )
        if evictions:
            preview = with_evictions(preview, *try_evictions(api, evictable_pods(preview.leaving)))
        preview = replace(
            preview,
            writes_refused=_refused(api, writes, plan_write),
            coordinator=tuple(coordinator_notes(read_coordinator(api, namespace), time.time())),
        )
    preview_text.show_preview(preview, output)
    if exit_code and preview.needs_a_look:
        raise click.exceptions.Exit(1)


def _refused(api: Api, writes: list[LayoutWrite], plan_write: node_writes.PlanWrite) -> str:
    """Refusals of the API server in a dry run of the writes: a line for each refused Node."""
    try:
        node_writes.write_layouts(api, writes, plan_write, dry_run=True)
    except CommandFailure as error:
        return "\n".join(map(safe_line, error.details))
    return ""
