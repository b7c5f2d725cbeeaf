# SPDX-License-Identifier: Apache-2.0
"""Joins the agent to the cluster that its settings point at."""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from agent.cluster.gpus_before import GpusBefore
from agent.cluster.membership import Cluster, Member
from agent.cluster.startup_spread import StartupSpread
from agent.layouts.layout_evaluator import LayoutInputs
from agent.layouts.layout_watch import LayoutWatch
from agent.metrics.latest_metrics import LatestMetrics
from agent.pods.known_pods import KnownPods
from agent.pods.resource_slices import FIELD, ResourceSlices
from agent.settings.agent_settings import AgentSettings
from api import names
from base import threads
from base.defects import Defects
from base.errors import BadInput
from kube.api import NODES, PODS, RESOURCE_SLICES, Api
from kube.client import ApiClient, Program
from kube.credentials import find
from kube.informer import Informer

REQUESTS_PER_SECOND = 2.0
BURST = 5
_END_SECONDS = 0.3


@contextlib.contextmanager
def connected(settings: AgentSettings) -> Iterator[ApiClient]:
    """The API server that the settings point at, which need not answer yet.

    Raises BadInput where no cluster is to be found.
    """
    kubeconfig = None if settings.kubeconfig is None else str(settings.kubeconfig)
    try:
        access = find(kubeconfig, service_account=settings.service_account)
    except BadInput as error:
        raise BadInput(f"{error}, or {_without_a_cluster(settings)}") from None
    program = Program(
        name=names.AGENT,
        version=version("gpuscape"),
        requests_per_second=REQUESTS_PER_SECOND,
        burst=BURST,
    )
    with contextlib.closing(ApiClient(program, access)) as client:
        yield client


def _without_a_cluster(settings: AgentSettings) -> str:
    if not settings.standalone:
        return "run without a cluster: --standalone"
    return "leave out what asks a cluster: pod-uid-label, pod-labels, counters-from"


@contextlib.contextmanager
def followed_pods(
    client: Api, node: str, known: KnownPods, turn: StartupSpread | None, defects: Defects
) -> Iterator[None]:
    """Watch the node's pods for ``known`` until the block ends, from the agent's ``turn`` on."""
    fields = {FIELD: node}
    take = known.on_watch_event
    with _followed(Informer(client, PODS, take, fields=fields, defects=defects), turn):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The agent's parts in a cluster that it has joined."""

    cluster: Cluster
    slices: ResourceSlices
    """ResourceSlices of the node; empty where the settings do not allow to read them."""


@contextlib.contextmanager
def joined_cluster(
    settings: AgentSettings,
    client: ApiClient,
    node: str,
    *,
    turn: StartupSpread,
    latest: LatestMetrics,
    before: GpusBefore,
    hold: Callable[[tuple[str, ...]], None],
    clear_xids: Callable[[str | None], bool],
    trigger: Callable[[str], None],
    layouts: LayoutInputs | None,
    defects: Defects,
) -> Iterator[Joined]:
    """The cluster, its Node watched until the block ends; then the Lease is emptied.

    All of it waits for the ``turn``, whose request is one of the cluster's ticks.

    ``before``, ``hold``, ``clear_xids`` and ``trigger`` are as :class:`Cluster` has them;
    ``layouts`` None: nobody looks after MIG layouts. A server that does not answer is waited for.
    """
    slices = ResourceSlices(latest.refresh)
    watch = None
    if layouts is not None:
        watch = LayoutWatch(replace(layouts, slice_drivers=slices.drivers))

    def read_anew() -> None:
        for informer in informers:
            informer.start_anew()

    cluster = Cluster(
        client,
        Member(
            node=node,
            namespace=settings.namespace,
            pod=settings.pod_name or node,
            identity=settings.pod_uid or _identity_of_process(),
        ),
        sink=settings.sink,
        allow_unconfined=settings.allow_unconfined,
        turn=turn,
        driver_ready_file=_below(settings.host_root, settings.driver_ready_file),
        update_metrics=latest.refresh,
        hold=hold,
        clear_xids=clear_xids,
        trigger=trigger,
        before=before,
        layouts=watch,
        rolled_back=read_anew,
        wall=time.time,
    )
    take = cluster.on_watch_event
    informers = [Informer(client, NODES, take, name=node, defects=defects)]
    if settings.resource_slices:
        fields = {FIELD: node}
        take = slices.on_watch_event
        informers.append(Informer(client, RESOURCE_SLICES, take, fields=fields, defects=defects))
    with contextlib.ExitStack() as ending:
        for informer in informers:
            ending.enter_context(_followed(informer, turn))
        # registered last, so it runs first: the Lease is emptied while the watches still run
        ending.callback(cluster.leave)
        yield Joined(cluster=cluster, slices=slices)


@contextlib.contextmanager
def _followed(informer: Informer, turn: StartupSpread | None) -> Iterator[None]:
    run = informer.run if turn is None else functools.partial(informer.run, turn.until_watch)
    thread = threads.started(run, "watch")
    try:
        yield
    finally:
        informer.close()
        thread.join(_END_SECONDS)


@functools.cache
def _identity_of_process() -> str:
    """Identity of an agent without a pod, which stays through a reload of its settings.

    With another one it would have to wait until its own Lease expires. Not to be taken for a
    pod's UID, of which the API shows when it has ended.
    """
    return f"process-{uuid.uuid4()}"


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to(path.anchor)
