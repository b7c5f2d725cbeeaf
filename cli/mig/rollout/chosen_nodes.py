# SPDX-License-Identifier: Apache-2.0
"""The Nodes of a rollout: chosen, shown, agreed to, written."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import click

from base.errors import BadInput
from cli import terminal
from cli.failures import REFUSED, CommandFailure
from cli.mig.cluster.cluster_nodes import client, followed, read_nodes, timeout_option
from cli.mig.rollout import asked_nodes
from cli.mig.rollout.asked_nodes import AskedNode, Asks
from kube.api import Object
from kube.label_selector import parse_label_selector

ME: Final = "gpuscape-mig-rollout"
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
    """Which Nodes, and how they are written."""

    names: tuple[str, ...]
    selector: str
    dry_run: bool
    yes: bool
    timeout: float
    """Seconds for reading the cluster."""

    def __post_init__(self) -> None:
        """Raises BadInput where nothing is chosen: silence never means all of a cluster."""
        if not self.names and not self.selector.strip():
            raise BadInput("name Nodes with --node, or select them with -l")


def chosen_nodes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose Nodes; the command gets ``choice``."""

    @functools.wraps(function)
    def command(**parameters: Any) -> Any:
        chosen = {field.name: parameters.pop(field.name) for field in fields(NodeChoice)}
        return function(choice=NodeChoice(**chosen), **parameters)

    made: Callable[..., Any] = command
    for add in reversed(_OPTIONS):
        made = add(made)
    return made


def run_rollout(kubeconfig: Path | None, asks: Asks, choice: NodeChoice, output: str) -> None:
    """Show what becomes of the chosen Nodes, ask, and write it.

    Raises BadInput for a Node that is not there, and CommandFailure where the cluster cannot be
    read, the answer is no, or Nodes could not be written.
    """
    selector = parse_label_selector(choice.selector)

    def take(node: Object) -> AskedNode | None:
        meta = node["metadata"]
        named = not choice.names or meta["name"] in choice.names
        return asks(node) if named and selector.matches(meta.get("labels") or {}) else None

    with contextlib.closing(client(ME, kubeconfig)) as api:
        with followed(api) as events:
            nodes = read_nodes(events, take, choice.timeout)
        for name in choice.names:
            if name not in nodes:
                raise BadInput(f"there is no node {name}")
        asked = sorted((one for one in nodes.values() if one), key=lambda one: one.node)
        if not asked:
            raise BadInput(f"no Node is selected by {choice.selector}")
        asked_nodes.show(asked, output)
        count = sum(1 for one in asked if one.annotations is not None)
        if not count:
            _note("Nothing to write.", output)
            return
        if not choice.dry_run and not choice.yes:
            _agree(count, output)
        done = asked_nodes.write(api, asked, asks, dry_run=choice.dry_run)
    if choice.dry_run:
        _note(f"The API server would take all {done} writes; nothing was written.", output)
        return
    where = f"-l '{choice.selector}'" if choice.selector else " ".join(choice.names)
    _note(f"Nodes written: {done}. See how far they are: gpuscape mig nodes {where}", output)


def _agree(count: int, output: str) -> None:
    if output != "table" or not sys.stdin.isatty():
        raise BadInput(f"there is nobody to ask: add --yes (Nodes to write: {count})")
    if not terminal.confirm("", f"Nodes to write: {count}. Write them?"):
        raise CommandFailure("nothing was written", REFUSED)


def _note(text: str, output: str) -> None:
    if output == "table":
        terminal.note("", text)
