# SPDX-License-Identifier: Apache-2.0
"""Choice of a rollout's Nodes on the command line, and writing them after a question."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from base.errors import BadInput
from cli import terminal
from cli.agreement import require_agreement
from cli.mig.cluster.cluster_nodes import kubeconfig_client, node_events, read_nodes
from cli.mig.rollout import node_writes
from cli.mig.rollout.node_writes import LayoutWrite, PlanWrite
from kube.label_selector import parse_label_selector
from kube.objects.node import Node
from kube.objects.typed_object import Metadata

PROGRAM: Final = "gpuscape-mig-rollout"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """Choice of Nodes by names, labels, or both."""

    names: tuple[str, ...]
    selector: str

    def __post_init__(self) -> None:
        """Raise BadInput where nothing is chosen: that never means all Nodes of the cluster."""
        if not self.names and not self.selector.strip():
            raise BadInput("name Nodes with --node, or select them with -l")

    def has(self, node: Metadata) -> bool:
        """Whether a Node is chosen."""
        is_named = not self.names or node.name in self.names
        return is_named and parse_label_selector(self.selector).matches(node.labels)

    def require_names(self, names: Collection[str]) -> None:
        """Raise BadInput for a Node that is named and not among all the Nodes of these names."""
        for name in self.names:
            if name not in names:
                raise BadInput(f"there is no node {name}")

    def require_writes(self, writes: Collection[LayoutWrite]) -> None:
        """Raise BadInput where no Node is selected."""
        if not writes:
            raise BadInput(f"no Node is selected by {self.selector}")


def chosen_nodes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose Nodes; the command gets ``choice``."""

    @click.option("--node", "names", multiple=True, metavar="NAME", help="This Node; repeat it.")
    @click.option(
        "-l", "--selector", default="", metavar="SELECTOR", help="Nodes with these labels."
    )
    @functools.wraps(function)
    def command(names: tuple[str, ...], selector: str, **parameters: Any) -> Any:
        return function(choice=NodeChoice(names=names, selector=selector), **parameters)

    return command


def run_rollout(
    kubeconfig: Path | None,
    plan_write: PlanWrite,
    choice: NodeChoice,
    *,
    dry_run: bool,
    yes: bool,
    timeout: float,
    output: str,
) -> None:
    """Show what a rollout writes to the chosen Nodes, ask, and write it.

    ``timeout``: seconds for reading the cluster. Raises BadInput for a Node that does not exist,
    and CommandFailure where the cluster cannot be read, the answer is no, or Nodes could not be
    written.
    """

    def write_if_chosen(node: Node) -> LayoutWrite | None:
        return plan_write(node) if choice.has(node.metadata) else None

    with contextlib.closing(kubeconfig_client(PROGRAM, kubeconfig)) as api:
        with node_events(api) as events:
            nodes = read_nodes(events, write_if_chosen, timeout)
        choice.require_names(nodes)
        chosen = (node_write for node_write in nodes.values() if node_write)
        writes = sorted(chosen, key=lambda node_write: node_write.node)
        choice.require_writes(writes)
        node_writes.show_layout_writes(writes, output)
        count = sum(1 for node_write in writes if node_write.annotations is not None)
        if not count:
            _note("Nothing to write.", output)
            return
        if not dry_run:
            question = f"Nodes to write: {count}. Write them?"
            purpose = f" (Nodes to write: {count})"
            require_agreement(question, purpose=purpose, yes=yes, output=output)
        written = node_writes.write_layouts(api, writes, plan_write, dry_run=dry_run)
    if dry_run:
        _note(f"The API server would take all {written} writes; nothing was written.", output)
        return
    selection = f"-l '{choice.selector}'" if choice.selector else " ".join(choice.names)
    _note(f"Nodes written: {written}. See how far they are: gpuscape mig nodes {selection}", output)


def _note(text: str, output: str) -> None:
    if output == "table":
        terminal.note("", text)
