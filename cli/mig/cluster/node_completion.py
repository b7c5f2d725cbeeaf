# SPDX-License-Identifier: Apache-2.0
"""Names of the cluster's Nodes for a shell that completes a command line.

Who presses the tab key waits: a cluster that does not answer within a second completes nothing, and
nothing is printed on the line that is being typed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from base.unblocked.bounded_call import bounded
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from kube.api import NODES
from kube.present_objects import present_objects

_PROGRAM: Final = "gpuscape-completion"
PATIENCE_SECONDS: Final = 1.0


def complete_nodes(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of Nodes that start like this, but for those on the command line already."""
    named = ctx.params.get(parameter.name or "") or ()
    names = (name for name in _names_in_time(ctx.params.get("kubeconfig")) if name not in named)
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


def _names_in_time(kubeconfig: str | None) -> Sequence[str]:
    """Names of all Nodes; none where they cannot be read in time."""
    path = None if kubeconfig is None else Path(kubeconfig)
    with _silence(), contextlib.suppress(Exception):  # whatever it is, it does not belong there
        return bounded(partial(_names, path), PATIENCE_SECONDS, "complete-nodes")
    return ()


def _names(kubeconfig: Path | None) -> Sequence[str]:
    with contextlib.closing(kubeconfig_client(_PROGRAM, kubeconfig)) as api:
        nodes = present_objects(api, NODES, metadata_only=True)
        return [node["metadata"]["name"] for node in nodes]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Nothing is logged within."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
