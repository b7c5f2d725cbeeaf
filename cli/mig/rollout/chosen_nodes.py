# SPDX-License-Identifier: Apache-2.0
"""Choice of a rollout's Nodes on the command line, and writing them after a question."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import click

from base.errors import BadInput
from cli import terminal
from cli.agreement import require_agreement
from cli.mig.cluster.cluster_nodes import kubeconfig_client, node_events, read_nodes, timeout_option
from cli.mig.rollout import node_writes
from cli.mig.rollout.node_writes import LayoutWrite, PlanWrite
from kube.label_selector import parse_label_selector
from kube.objects.node import Node

PROGRAM: Final = "gpuscape-mig-rollout"
_OPTIONS: Final[tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]] = (
    click.option("--node", "names", multiple=True, metavar="NAME", help="This Node; repeat it."),
    click.option(
        "-l", "--selector", default="", metavar="SELECTOR", help="Nodes with these labels."
    ),
    click.option(
        "--dry-run", is_flag=True, help="Have the API server try each write; write nothing."
    ),
    click.option("-y", "--yes", is_flag=True, help="Do not ask."),
    timeout_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """Choice of Nodes, and options for writing them."""

    names: tuple[str, ...]
    selector: str
    dry_run: bool
    yes: bool
    timeout: float
    """Seconds for reading the cluster."""

    def __post_init__(self) -> None:
        """Raise BadInput where nothing is chosen: that never means all Nodes of the cluster."""
        if not self.names and not self.selector.strip():
            raise BadInput("name Nodes with --node, or select them with -l")


def chosen_nodes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose Nodes; the command gets ``choice``."""

    @functools.wraps(function)
    def command(**parameters: Any) -> Any:
        values = {field.name: parameters.pop(field.name) for field in fields(NodeChoice)}
        return function(choice=NodeChoice(**values), **parameters)

    decorated: Callable[..., Any] = command
    for add in reversed(_OPTIONS):
        decorated = add(decorated)
    return decorated


def run_rollout(
    kubeconfig: Path | None, plan_write: PlanWrite, choice: NodeChoice, output: str
) -> None:
    """Show what a rollout writes to the chosen Nodes, ask, and write it.

    Raises BadInput for a Node that does not exist, and CommandFailure where the cluster cannot be
    read, the answer is no, or Nodes could not be written.
    """
    selector = parse_label_selector(choice.selector)

    def write_if_chosen(node: Node) -> LayoutWrite | None:
        is_named = not choice.names or node.name in choice.names
        return plan_write(node) if is_named and selector.matches(node.metadata.labels) else None

    with contextlib.closing(kubeconfig_client(PROGRAM, kubeconfig)) as api:
        with node_events(api) as events:
            nodes = read_nodes(events, write_if_chosen, choice.timeout)
        for name in choice.names:
            if name not in nodes:
                raise BadInput(f"there is no node {name}")
        writes = sorted(
            (node_write for node_write in nodes.values() if node_write),
            key=lambda node_write: node_write.node,
        )
        if not writes:
            raise BadInput(f"no Node is selected by {choice.selector}")
        node_writes.show_layout_writes(writes, output)
        count = sum(1 for node_write in writes if node_write.annotations is not None)
        if not count:
            _note("Nothing to write.", output)
            return
        if not choice.dry_run:
            question = f"Nodes to write: {count}. Write them?"
            purpose = f" (Nodes to write: {count})"
            require_agreement(question, purpose=purpose, yes=choice.yes, output=output)
        written = node_writes.write_layouts(api, writes, plan_write, dry_run=choice.dry_run)
    if choice.dry_run:
        _note(f"The API server would take all {written} writes; nothing was written.", output)
        return
    selection = f"-l '{choice.selector}'" if choice.selector else " ".join(choice.names)
    _note(f"Nodes written: {written}. See how far they are: gpuscape mig nodes {selection}", output)


def _note(text: str, output: str) -> None:
    if output == "table":
        terminal.note("", text)
