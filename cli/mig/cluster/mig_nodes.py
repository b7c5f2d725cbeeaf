# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig nodes``: which layouts the cluster's Nodes ask for, and how far each change is."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from typing import Final

import click

from base.errors import BadInput
from cli import options, terminal
from cli.mig.cluster.cluster_nodes import (
    Events,
    kubeconfig_client,
    node_events,
    read_nodes,
    timeout_option,
)
from cli.mig.cluster.coordinator_notes import (
    coordinator_document,
    coordinator_notes,
    namespace_option,
)
from cli.mig.cluster.layout_tables import (
    layout_row,
    layout_summary,
    layout_table,
    node_layout_document,
)
from cli.mig.cluster.node_completion import complete_nodes
from cli.options import Load
from cli.terminal import Styled
from fleet.status.coordinator_view import CoordinatorView, read_coordinator
from fleet.status.node_layout import NodeLayout, node_layout
from kube.informer import ObjectGone, ObjectSeen, WatchConnected, WatchEvent, WatchLost
from kube.label_selector import parse_label_selector
from kube.objects.node import Node

_PROGRAM: Final = "gpuscape-mig-nodes"
_POLL_SECONDS: Final = 0.2
"""Longest wait for an event, after which Ctrl-C is noticed."""

SelectLayout = Callable[[Node], NodeLayout | None]
"""Layout state of a Node; None where the Node is not to be shown."""


@click.command(
    epilog="""\b
Examples:
  gpuscape mig nodes
  gpuscape mig nodes -l 'pool=a100,tier!=dev' --watch
  gpuscape mig nodes gpu-7 -o json | jq -r '.nodes[].status.reason'
  gpuscape mig nodes --unsettled --exit-code       in a script: is every layout there?

\b
Columns:
  DESIRED  the annotation gpuscape.io/mig-layout, otherwise the label nvidia.com/mig.config
  PHASE    by the node's agent; - if no agent manages MIG, unjudged until the agent has evaluated
           the present desired layout. (drift): the GPUs had it, and another program has changed
           them; no pod is evicted for this
  SLOT     the permit's phase: cordoned while pods leave and the node is read once more, proceed
           while the node may change its GPUs
  PODS     in the way: they use what the change would destroy
  WHY      the agent's reason; unknown phases and other versions are shown as they are. Also
           whether the Node has the taint gpuscape.io/mig-layout-pending, which keeps pods away
           until its first layout is there; it does not count for --unsettled and --exit-code

\b
Nodes without a desired layout, without an agent that manages MIG and without this taint are left
out. A note above the last line says what blocks all nodes: no coordinator, a pause, failures. It
reads Nodes (list and watch) and the Lease "coordinator" with your own rights, and writes nothing.

\b
Exit codes:
  0  shown
  1  with --exit-code: a node does not have its desired layout
  2  bad input, a node that is not there
  4  the cluster could not be read"""
)
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=complete_nodes)
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="Nodes with these labels.")
@click.option("--unsettled", is_flag=True, help="Only nodes without their desired layout.")
@click.option("--watch", is_flag=True, help="Then a line for each change, until Ctrl-C.")
@click.option("--exit-code", is_flag=True, help="End with 1 if a node lacks its layout.")
@namespace_option
@timeout_option
@options.output("table", "wide", "json", "yaml")
@options.settings("kubeconfig")
def command(
    load: Load,
    names: tuple[str, ...],
    selector: str,
    unsettled: bool,
    watch: bool,
    exit_code: bool,
    namespace: str,
    timeout: float,
    output: str,
) -> None:
    """Show the desired MIG layout and the phase of each Node of the cluster."""
    if watch and (exit_code or output in ("json", "yaml")):
        raise BadInput("--watch prints lines of a table: leave out --exit-code, -o json and yaml")
    label_selector = parse_label_selector(selector)

    def select_layout(node: Node) -> NodeLayout | None:
        is_named = not names or node.name in names
        if not is_named or not label_selector.matches(node.metadata.labels):
            return None
        layout = node_layout(node)
        return None if layout is None or (unsettled and layout.is_settled) else layout

    with (
        contextlib.closing(kubeconfig_client(_PROGRAM, load().kubeconfig)) as api,
        node_events(api) as events,
    ):
        nodes = read_nodes(events, select_layout, timeout)
        for name in names:
            if name not in nodes:
                raise BadInput(f"there is no node {name}")
        present = filter(None, nodes.values())
        layouts = sorted(present, key=lambda layout: layout.node)
        _show(layouts, read_coordinator(api, namespace), output)
        if watch:
            shown = {layout.node: layout for layout in layouts}
            _watch(events, select_layout, shown, wide=output == "wide")
    if exit_code and not all(layout.is_settled for layout in layouts):
        raise click.exceptions.Exit(1)


def _show(layouts: list[NodeLayout], coordinator: CoordinatorView, output: str) -> None:
    if output in ("json", "yaml"):
        nodes = [node_layout_document(layout) for layout in layouts]
        document = {"nodes": nodes, "coordinator": coordinator_document(coordinator)}
        terminal.print_data(document, output)
    elif not layouts:
        terminal.note("None of these nodes has a desired MIG layout, or an agent that manages MIG.")
    else:
        terminal.show_table(layout_table(layouts, wide=output == "wide"))
        terminal.note("")
        if not all(layout.is_settled for layout in layouts):
            terminal.note(*coordinator_notes(coordinator, time.time()))
        terminal.note(layout_summary(layouts))


def _watch(
    events: Events, select_layout: SelectLayout, shown: dict[str, NodeLayout], *, wide: bool
) -> None:
    """Print a line for each change of a layout state until Ctrl-C is pressed."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=_POLL_SECONDS)
                for line in _lines(event, select_layout, shown, wide=wide):
                    terminal.note(line)


def _lines(
    event: WatchEvent, select_layout: SelectLayout, shown: dict[str, NodeLayout], *, wide: bool
) -> Iterator[str]:
    match event:
        case ObjectSeen(object=seen):
            node = Node.from_object(seen)
            name, layout = node.name, select_layout(node)
            if layout == shown.get(name):
                return
            if layout is None:
                del shown[name]
                yield f"{name}  has its desired layout, or no layout is desired any more"
                return
            shown[name] = layout
            cells = layout_row(layout, wide=wide)
            yield "  ".join(cell.text if isinstance(cell, Styled) else cell for cell in cells)
        case ObjectGone(name=name) if shown.pop(name, None) is not None:
            yield f"{name}  the Node is gone"
        case WatchLost(error=error):
            yield f"connection lost: {error}"
        case WatchConnected():
            yield "connected"
