"""Joins the agent to the cluster that its settings point at."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from agent.cluster.membership import Cluster, Member
from agent.config import Settings
from agent.latest import Latest
from agent.podresources.client import PodResources
from agent.slices import FIELD, Slices
from discovery.errors import BadInput
from kube.access import find
from kube.api import NODES, RESOURCE_SLICES
from kube.client import Client, Program
from kube.follow import Follower
from labelers import names

REQUESTS_PER_SECOND = 2.0
BURST = 5
_END_SECONDS = 1.0


@contextlib.contextmanager
def joined(
    settings: Settings, node: str, latest: Latest, hold: Callable[[tuple[str, ...]], None]
) -> Iterator[Cluster]:
    """The cluster, its Node watched until the block ends; then the Lease is emptied.

    ``hold`` hears for which causes the GPUs are to be left alone. Raises BadInput where
    no cluster is to be found; one that does not answer is waited for.
    """
    kubeconfig = None if settings.kubeconfig is None else str(settings.kubeconfig)
    try:
        access = find(kubeconfig, service_account=settings.service_account)
    except BadInput as error:
        raise BadInput(f"{error}, or run without a cluster: --standalone") from None
    program = Program(
        name=names.AGENT,
        version=version("gpuscape"),
        requests_per_second=REQUESTS_PER_SECOND,
        burst=BURST,
    )
    slices = Slices()
    with contextlib.closing(Client(program, access)) as client:
        cluster = Cluster(
            client,
            Member(
                node=node,
                namespace=settings.namespace,
                pod=settings.pod_name or node,
                identity=settings.pod_uid or str(uuid.uuid4()),
            ),
            sink=settings.sink,
            allow_unconfined=settings.allow_unconfined,
            start_spread_seconds=settings.start_spread_seconds,
            kubelet=PodResources(settings.pod_resources_socket),
            resolve=slices.uuid,
            driver_ready_file=_below(settings.host_root, settings.driver_ready_file),
            snapshot=lambda: latest.snapshot,
            tell=latest.refresh,
            hold=hold,
            wall=time.time,
        )
        followers = [Follower(client, NODES, cluster.hear, name=node)]
        if settings.resource_slices:
            fields = {FIELD: node}
            followers.append(Follower(client, RESOURCE_SLICES, slices.hear, fields=fields))
        with contextlib.ExitStack() as ending:
            for follower in followers:
                ending.enter_context(_followed(follower))
            ending.callback(cluster.leave)
            yield cluster


@contextlib.contextmanager
def _followed(follower: Follower) -> Iterator[None]:
    thread = threading.Thread(target=follower.run, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        follower.close()
        thread.join(_END_SECONDS)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to(path.anchor)
