# SPDX-License-Identifier: Apache-2.0
"""``gpuscape free``: free GPUs of the cluster, and what a pod would get."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import click

from api.gpu_request import Link
from base.errors import BadInput
from cli import options, terminal
from cli.failures import UNREADABLE, CommandFailure
from cli.fitted_table import narrow_table
from cli.free.free_view import node_table, totals_by_product, totals_table
from cli.live_screen import LiveScreen, is_live_terminal, live_screen, refreshes
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.options import Load
from cli.scheduler.explain_command import explanation_table
from cli.terminal import Styled, TextTable
from forecast.fleet_reading import FleetReading, read_fleet
from forecast.pod_places import pod_places, toleration
from kube.api import InspectedApi
from kube.api_errors import ApiError, Forbidden
from kube.label_selector import parse_label_selector
from scheduler.score_explanation import Explanation

_ME: Final = "gpuscape-free"
_MOST_GPUS: Final = 1024
_BY_KEYS: Final = "Pods that hold GPUs are named, and free MIG devices counted, with --pods."

_PLACES: Final = {"NODE": 20, "GPUS": 14, "WHY": 24}
"""Columns of the table of places to how far each may be cut."""

Lines = list[str]


def _gpu_count(ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """The number of GPUs in an argument or option; None without one. Raises BadInput."""
    del ctx, parameter
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST_GPUS:
        return int(text)
    raise BadInput(
        f"'{text}' is no number of GPUs for a pod: give a whole number from 1 to {_MOST_GPUS},"
        " as in gpuscape free 4"
    )


@click.command(
    epilog="""\b
Examples:
  gpuscape free                       every node with GPUs, and the totals by product
  gpuscape free 4                     where a pod of 4 GPUs would fit, which GPUs it would get
  gpuscape free -l pool=h100 --watch
  gpuscape free --pods -o wide        which pod holds which GPU; free MIG devices
  gpuscape free 8 --tolerate dedicated=gpu --link nvlink
  kubectl gpuscape free -o json | jq '.totals'

\b
The command reads Nodes and the agents' Leases with your own rights (get, list and watch of nodes,
and of leases in the agents' namespace); with --pods also pods of all namespaces. Without --pods,
a pod counts once its agent has reported it, seconds after its start.

\b
Columns:
  FREE    GPUs that a pod could get whole now, of all GPUs of the node
  LINKED  the largest set of free GPUs in which NVLink joins every pair, and its speed
  OUT     nodes that are cordoned or not ready, or whose agent is silent: not in the totals

\b
With a number of GPUs, the output is as in `gpuscape scheduler explain`: the best nodes first, with
the sets of GPUs that the pod may get, their odds, and their speed out of the best of such a node;
then the nodes that are left out, with the reason. Ranks follow the extender's setting
product-order where you may read its Deployment; else the default, as a note says.

\b
Exit codes:
  0  the cluster was read, whatever is free
  2  bad input, no kubeconfig
  4  the cluster could not be read, or has no agent of gpuscape"""
)
@click.argument("count", metavar="[GPUS]", required=False, callback=_gpu_count)
@click.option(
    "--gpus", metavar="N", callback=_gpu_count, help=f"The same as the argument, 1 to {_MOST_GPUS}."
)
@click.option(
    "--link",
    type=click.Choice([link.value for link in Link]),
    default=Link.ANY.value,
    show_default=True,
    help="The pod's annotation gpuscape.io/link.",
)
@click.option(
    "--tolerate",
    "tolerated",
    multiple=True,
    metavar="KEY[=VALUE]",
    help="The pod tolerates this taint; repeatable.",
)
@click.option("--pods", is_flag=True, help="Read bound pods too.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Nodes, as kubectl selects.")
@options.namespace("Where gpuscape is installed.")
@click.option("-w", "--watch", is_flag=True, help="Refresh in place until q or Ctrl-C.")
@options.interval(default="5s", at_least="1s")
@click.option("--context", metavar="NAME", help="Of the kubeconfig.  [default: its current one]")
@options.output("table", "wide", "json", "yaml")
@options.settings("kubeconfig")
def command(
    load: Load,
    count: int | None,
    gpus: int | None,
    link: str,
    tolerated: tuple[str, ...],
    pods: bool,
    selector: str,
    namespace: str,
    watch: bool,
    interval: float,
    context: str | None,
    output: str,
) -> None:
    """Show free GPUs, linked sets and MIG devices of the cluster, and where a pod of GPUS fits."""
    if count is not None and gpus is not None and count != gpus:
        raise BadInput(f"{count} and --gpus {gpus}: give the number of GPUs once")
    size = count if gpus is None else gpus
    if size is None and (tolerated or link != Link.ANY.value):
        raise BadInput("--tolerate and --link are of a pod: give its number of GPUs")
    if watch and (output in ("json", "yaml") or not is_live_terminal()):
        raise BadInput("--watch refreshes a table on a terminal: leave it out here")
    chosen = parse_label_selector(selector)
    tolerations = [toleration(text) for text in tolerated]

    def read(api: InspectedApi) -> FleetReading:
        fleet = _read(
            lambda: read_fleet(
                api,
                namespace=namespace,
                selector=chosen,
                with_pods=pods,
                with_order=size is not None,
            )
        )
        _require_agents(fleet, namespace, selector)
        return fleet

    def tables(fleet: FleetReading, width: int) -> Iterable[TextTable | str]:
        if size is None:
            return _free_tables(fleet, width, pods=pods)
        places = pod_places(fleet, size, link=Link(link), tolerations=tolerations)
        return _place_tables(places, width, wide=output == "wide")

    with contextlib.closing(kubeconfig_client(_ME, load().kubeconfig, context)) as api:
        if watch:
            with live_screen() as screen:
                _follow(screen, interval, lambda width: _lines(tables(read(api), width), width))
            return
        fleet = read(api)
    if output in ("json", "yaml"):
        places = (
            None
            if size is None
            else pod_places(fleet, size, link=Link(link), tolerations=tolerations)
        )
        document = {"nodes": fleet.nodes, "totals": totals_by_product(fleet.nodes)}
        terminal.print_data(document if places is None else places, output)
        return
    width = terminal.screen_width() if output == "table" else terminal.WIDE_ENOUGH
    terminal.print_lines(_lines(tables(fleet, width), width))


def _read(read: Callable[[], FleetReading]) -> FleetReading:
    """The fleet as ``read`` gives it.

    Raises CommandFailure where a right is missing, and the other errors of the API.
    """
    try:
        return read()
    except Forbidden as error:
        raise CommandFailure(
            f"{error}: gpuscape free needs get, list and watch of nodes, and of leases in the"
            " agents' namespace (-n); with --pods also of pods",
            UNREADABLE,
        ) from error


def _require_agents(fleet: FleetReading, namespace: str, selector: str) -> None:
    if not fleet.has_agents and not selector:
        raise CommandFailure(
            f"no agent of gpuscape has published anything: no Lease in namespace {namespace} and no"
            " Node with its annotation. Install it (docs/install.md: helm install, or kubectl apply"
            " -k), or name its namespace with -n",
            UNREADABLE,
        )


def _free_tables(fleet: FleetReading, width: int, *, pods: bool) -> Iterable[TextTable | str]:
    if not fleet.nodes:
        yield "No node with GPUs."
        return
    yield node_table(fleet.nodes, width)
    yield ""
    yield totals_table(totals_by_product(fleet.nodes), width)
    if not pods and any(node.holders or node.mig for node in fleet.nodes):
        yield ""
        yield _BY_KEYS


def _place_tables(places: Explanation, width: int, *, wide: bool) -> Iterable[TextTable | str]:
    yield narrow_table(explanation_table(places, wide=wide), width, _PLACES)
    yield ""
    yield from places.notes


def _lines(parts: Iterable[TextTable | str], width: int) -> Lines:
    styled = terminal.is_styled()
    lines: Lines = []
    for part in parts:
        if isinstance(part, TextTable):
            lines += terminal.table_lines(part, styled=styled, width=width)
        else:
            wrapped = textwrap.wrap(part, width) or [""]
            lines += [terminal.joined_cells(Styled(text, "dim"), styled=styled) for text in wrapped]
    return lines


def _follow(screen: LiveScreen, seconds: float, read: Callable[[int], Lines]) -> None:
    """Read and draw again and again; what cannot be read now leaves the last frame as it is."""
    shown: Lines = []
    for _ in refreshes(screen, seconds):
        width = screen.size.columns
        status = f"{datetime.now().astimezone():%H:%M:%S}  q quits"
        try:
            shown = read(width)
        except ApiError as error:
            if not shown:
                raise
            status = f"not read now: {error}"
        head = terminal.joined_cells(
            Styled(status, "dim"), styled=terminal.is_styled(), width=width
        )
        screen.draw([head, "", *shown])
