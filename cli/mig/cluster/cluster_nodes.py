# SPDX-License-Identifier: Apache-2.0
"""The cluster's Nodes, read with the rights of whoever runs a command."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from base import threads
from cli.failures import UNREADABLE, CommandFailure
from kube.api import NODES, Api, Object
from kube.follower import CacheSynced, Follower, ObjectGone, ObjectSeen, WatchEvent, WatchLost

if TYPE_CHECKING:
    from kube.client import ApiClient

_REQUESTS_PER_SECOND: Final = 20

Events = queue.SimpleQueue[WatchEvent]
T = TypeVar("T")


def timeout_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--timeout``; the command gets ``timeout``, in seconds."""
    return click.option(
        "--timeout",
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        type=click.FloatRange(min=0.1),
        help="For reading the cluster.",
    )(function)


def client(program: str, kubeconfig: Path | None, context: str | None = None) -> ApiClient:
    """The cluster of the kubeconfig; asks it nothing yet. ``program``: the field manager."""
    from kube.client import Program, connect  # with the official package, which loads slowly

    named = Program(
        name=program,
        version=version("gpuscape"),
        requests_per_second=_REQUESTS_PER_SECOND,
        burst=_REQUESTS_PER_SECOND,
    )
    return connect(named, kubeconfig=kubeconfig, context=context)


@contextlib.contextmanager
def followed(api: Api) -> Iterator[Events]:
    """Events of all Nodes while the block lasts."""
    events: Events = queue.SimpleQueue()
    follower = Follower(api, NODES, events.put)
    threads.started(follower.run, "follow-nodes")
    try:
        yield events
    finally:
        follower.close()


def read_nodes(events: Events, take: Callable[[Object], T], timeout: float) -> dict[str, T]:
    """What ``take`` makes of each Node, by name.

    Raises CommandFailure where the cluster does not send them in time.
    """
    until = time.monotonic() + timeout
    nodes: dict[str, T] = {}
    why = "it has not sent all Nodes"
    while (left := until - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left)
        except queue.Empty:
            break
        match event:
            case ObjectSeen(object=node):
                nodes[node["metadata"]["name"]] = take(node)
            case ObjectGone(name=name):
                nodes.pop(name, None)
            case WatchLost(error=error):
                why = str(error)
            case CacheSynced():
                return nodes
    raise CommandFailure(f"the cluster was not read within {timeout:g} s: {why}", UNREADABLE)
