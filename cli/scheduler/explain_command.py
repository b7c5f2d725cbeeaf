# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler explain``: why each node got its score for one pod."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from api import names
from base.errors import BadInput
from cli import options, terminal
from cli.scheduler.pod_placement import PodPlacement, placement_text, read_placement
from cli.terminal import Cell, Styled, TextTable
from kube.api import PODS, Api, Object
from kube.api_errors import NotFound
from scheduler.explanation_source import (
    ExplainedPod,
    ExtenderClient,
    candidate_nodes,
    cluster_explanation,
    extender_explanation,
    limited_to_nodes,
    read_pod_manifest,
)
from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS, SchedulerSettings
from scheduler.filters.node_filters import LeftOutNode
from scheduler.score_explanation import Chance, Explanation, NodeAnswer

if TYPE_CHECKING:
    from kube.client import ApiClient

_ME: Final = "gpuscape-explain"
_REQUESTS_PER_SECOND: Final = 50  # a list by pages is what a person waits for
_BEST: Final = 10
_READING: Final = (
    "kubeconfig",
    "gpu-resource",
    "nic-resources",
    "topology-manager",
    "topology-manager-scope",
    "allocation",
    "product-order",
)
"""Settings of the extender that an explanation depends on."""
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  gpuscape scheduler explain train-0 -n team-a
  gpuscape scheduler explain -f pod.yaml         a pod that is not there yet
  gpuscape scheduler explain -f job.yaml         the pod that a Job or Deployment would make
  gpuscape scheduler explain train-0 --server http://127.0.0.1:8888
      what a running extender knows
  gpuscape scheduler explain train-0 --node gpu-1 --node gpu-2 -o json

\b
Nodes are left out as kube-scheduler's filters do: node name, cordon, taints, node selector and
required node affinity, then pods, cpu, memory, GPUs and other resources that bound pods hold. The
others are ranked among each other, 0 to 10: what the extender answers when the scheduler
asks about them. Below the table the command names the filters that it does not evaluate, says when
the scheduler asks no extender, and lists the pods that the scheduler would delete to make room. A
manifest is evaluated as it is written: what admission adds is missing, except the priority of its
PriorityClass.

\b
GPUS are the sets that may be allocated, the likeliest first; GPU numbers are places in the
node's annotation gpuscape.io/topology. wide adds the free GPUs, what would be left for other
pods in GPUs, and the topology class. A pod that is on a node already is judged as if it came now;
without --server its own GPUs count as free. Above the table is where it is, and which GPUs it has
once the node's agent has published that.

\b
Without --server no extender is needed: nodes, pods and the agents' Leases are read from the
cluster, with the settings of the command line, the environment or the settings file.
Every agent that has not released its Lease counts as alive then; a running
extender knows which have stopped. With --server nodes and pods are read for the filters.

\b
Exit codes: 2 bad input, 4 the extender or the cluster did not answer."""
)
@click.argument("pod", required=False)
@click.option("-n", "--namespace", default="default", show_default=True, help="Of the pod.")
@click.option(
    "-f",
    "--file",
    type=_FILE,
    help="Manifest of a pod, Job or Deployment, in place of a pod that is there.",
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Show only this; repeatable.")
@click.option("--server", metavar="URL", help="Ask this extender.")
@click.option("--ca-file", type=_FILE, help="Authority of its certificate, PEM.")
@click.option("--cert-file", type=_FILE, help="Certificate to show it, PEM.")
@click.option("--key-file", type=_FILE, help="Key of that certificate, PEM.")
@click.option(
    "--filters/--no-filters",
    default=True,
    show_default=True,
    help="Leave nodes out as the scheduler's filters do; without, no nodes are read with --server.",
)
@click.option(
    "--agents-namespace",
    help=f"Of the agents' Leases.  [default: the setting namespace, {names.NAMESPACE}]",
)
@click.option(
    "--timeout", default=30.0, show_default=True, type=click.FloatRange(0.1), help="Seconds."
)
@options.output("table", "wide", "json", "yaml")
@options.program_settings(SCHEDULER_SETTINGS, _READING)
def command(
    load: Callable[[], SchedulerSettings],
    pod: str | None,
    namespace: str,
    file: Path | None,
    nodes: tuple[str, ...],
    server: str | None,
    ca_file: Path | None,
    cert_file: Path | None,
    key_file: Path | None,
    filters: bool,
    agents_namespace: str | None,
    timeout: float,
    output: str,
) -> None:
    """Say why each node got its score for POD.

    A pod that asks for no whole GPU has no scores: the scheduler decides about it as ever.
    """
    if (pod is None) is (file is None):
        raise BadInput("name a pod of the cluster or give a manifest with -f, one of them")
    settings = load()
    explained_pod = (
        None if file is None else ExplainedPod(manifest=read_pod_manifest(file), is_there=False)
    )
    running = None
    if server is not None:
        running = ExtenderClient(
            server=server, ca_file=ca_file, cert_file=cert_file, key_file=key_file
        )
    if explained_pod is not None and running is not None and not filters:
        _show(
            limited_to_nodes(extender_explanation(running, explained_pod, None, timeout), nodes),
            None,
            output,
        )
        return
    logging.getLogger("scheduler").addHandler(logging.NullHandler())  # the table says it all
    with closing(_client(settings)) as api:
        if explained_pod is None:
            explained_pod = ExplainedPod(
                manifest=_pod_manifest(api, pod or "", namespace), is_there=True
            )
        settings = replace(settings, namespace=agents_namespace or settings.namespace)
        placed = read_placement(api, explained_pod, settings.namespace)
        if running is not None:
            filtered_nodes = candidate_nodes(api, explained_pod, timeout) if filters else None
            explanation = extender_explanation(running, explained_pod, filtered_nodes, timeout)
        else:
            explanation = cluster_explanation(
                api, explained_pod, settings, filters=filters, timeout_seconds=timeout
            )
    _show(limited_to_nodes(explanation, nodes), placed, output)


def explanation_table(explanation: Explanation, *, wide: bool) -> TextTable:
    """Table with a row for each candidate, then for each node that a filter leaves out."""
    more = ("FREE", "LEFT FOR OTHERS", "CLASS") if wide else ()
    header = ("NODE", "RANK", "GPUS", "GB/S", *more, "WHY")
    rows = [_row(node, wide=wide) for node in explanation.nodes]
    rows += [_left_out(node, len(header)) for node in explanation.left_out]
    return TextTable(header=header, rows=tuple(rows), right=frozenset({1, 3}))


def _client(settings: SchedulerSettings) -> ApiClient:
    from kube.client import Program, connect  # with the official package, which loads slowly

    program = Program(
        name=_ME,
        version=version("gpuscape"),
        requests_per_second=_REQUESTS_PER_SECOND,
        burst=_REQUESTS_PER_SECOND,
    )
    return connect(program, kubeconfig=settings.kubeconfig)


def _pod_manifest(api: Api, name: str, namespace: str) -> Object:
    try:
        return api.get(PODS, name, namespace=namespace)
    except NotFound as error:
        raise BadInput(f"there is no pod {name} in namespace {namespace}: see -n") from error


def _show(explanation: Explanation, placed: PodPlacement | None, output: str) -> None:
    if output in ("json", "yaml"):
        terminal.print_data({**msgspec.structs.asdict(explanation), "placed": placed}, output)
        return
    if placed is not None:
        terminal.note(
            placement_text(placed, explanation.pod, whole=bool(explanation.containers)), ""
        )
    if not explanation.containers:
        terminal.note(f"Pod {explanation.pod} asks for no whole GPU: it gets no scores.")
    elif not explanation.nodes and not explanation.left_out:
        terminal.note("The cluster has no nodes.")
    else:
        terminal.show_table(explanation_table(explanation, wide=output == "wide"))
        if explanation.notes:
            terminal.note("", *explanation.notes)


def _row(node: NodeAnswer, *, wide: bool) -> tuple[Cell, ...]:
    style = "bold green" if node.rank == _BEST else "" if node.rank else "dim"
    speed = "-" if not node.gbps else f"{node.gbps:.0f} of {node.ideal_gbps or 0:.0f}"
    more: tuple[str, ...] = ()
    if wide:
        kept = "-" if node.kept is None else f"{node.kept:.1f}"
        more = (_places(node.free), kept, node.gen or "-")
    return (
        Styled(node.node, "bold"),
        Styled(str(node.rank), style),
        _sets(node.sets, max_sets=len(node.sets) if wide else 2),
        speed,
        *more,
        node.why,
    )


def _left_out(node: LeftOutNode, columns: int) -> tuple[Cell, ...]:
    empty = ("-",) * (columns - 2)
    return (Styled(node.node, "dim"), *empty, Styled(f"left out: {node.why}", "dim"))


def _sets(sets: Sequence[Chance], max_sets: int) -> str:
    """Sets of GPUs with their odds, such as ``0,3 50 % | 1,2 50 %``."""
    texts = [
        f"{_places(chance.gpus)} {chance.odds:.0%}".replace("%", " %") for chance in sets[:max_sets]
    ]
    return " | ".join(texts) + (" ..." if len(sets) > max_sets else "") if texts else "-"


def _places(gpus: Sequence[int]) -> str:
    return ",".join(map(str, gpus)) or "none"
