# SPDX-License-Identifier: Apache-2.0
"""The cluster's Nodes, read with the rights of whoever runs a command."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from base import threads
from cli.failures import UNREADABLE, CommandFailure
from kube.api import NODES, Api
from kube.informer import CacheSynced, Informer, ObjectGone, ObjectSeen, WatchEvent, WatchLost
from kube.objects.node import Node

if TYPE_CHECKING:
    from kube.client import ApiClient

_REQUESTS_PER_SECOND: Final = 20

Events = queue.SimpleQueue[WatchEvent]
T = TypeVar("T")


timeout_option: Final = click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    help="For reading the cluster.",
)
"""Adds ``--timeout``; the command gets ``timeout``, in seconds."""


def kubeconfig_client(
    program: str, kubeconfig: Path | None, context: str | None = None
) -> ApiClient:
    """Client of the kubeconfig's cluster; sends no request yet. ``program``: the field manager."""
    from kube.client import Program, connect  # with the official package, which loads slowly

    rate = _REQUESTS_PER_SECOND
    named = Program(name=program, version=version("gpuscape"), requests_per_second=rate, burst=rate)
    return connect(named, kubeconfig=kubeconfig, context=context)


@contextlib.contextmanager
def node_events(api: Api) -> Iterator[Events]:
    """Events of all Nodes while the block lasts."""
    events: Events = queue.SimpleQueue()
    informer = Informer(api, NODES, events.put)
    threads.started(informer.run, "follow-nodes")
    try:
        yield events
    finally:
        informer.close()


def read_nodes(events: Events, convert: Callable[[Node], T], timeout: float) -> dict[str, T]:
    """Read all Nodes: name to what ``convert`` returns for the Node.

    Raises CommandFailure where the cluster does not send them in time.
    """
    deadline = time.monotonic() + timeout
    nodes: dict[str, T] = {}
    reason = "it has not sent all Nodes"
    while (remaining := deadline - time.monotonic()) > 0:
        try:
            event = events.get(timeout=remaining)
        except queue.Empty:
            break
        match event:
            case ObjectSeen(object=node):
                nodes[node["metadata"]["name"]] = convert(Node.from_object(node))
            case ObjectGone(name=name):
                nodes.pop(name, None)
            case WatchLost(error=error):
                reason = str(error)
            case CacheSynced():
                return nodes
    raise CommandFailure(f"the cluster was not read within {timeout:g} s: {reason}", UNREADABLE)
