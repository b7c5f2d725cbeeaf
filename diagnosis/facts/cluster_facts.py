# SPDX-License-Identifier: Apache-2.0
"""Facts from the API server: its version and clock, our account's rights, the Node and its pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from agent.cluster.confinement import Confinement, tried
from agent.cluster.counters_from_cluster import config_map_text
from agent.settings.agent_settings import AgentSettings
from api import names
from base.errors import GpuscapeError
from diagnosis.finding import Unread
from exporters.dcgm.counters_format import CountersConfig, read_counters
from kube.access_reviews import AccessRight, may, own_account
from kube.api import (
    CONFIG_MAPS,
    DAEMON_SETS,
    EVENTS,
    LEASES,
    NODE_FEATURES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    SECRETS,
    InspectedApi,
    Object,
    ServerInfo,
)
from kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized
from kube.lease import Lease
from kube.objects.pod import Pod
from kube.present_objects import present_objects

if TYPE_CHECKING:
    from kube.api_server import ApiServer
    from kube.client import ApiClient

REQUESTS_PER_SECOND: Final = 50
ANSWER_SECONDS: Final = 10.0
"""Time after which a request counts as unanswered."""

STOPPED_WRITES: Final = "gpuscape-stopped-writes"
"""Admission policy by which the chart stops all of gpuscape's writes."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCluster(Unread):
    """The API server cannot be used at all."""

    refused: bool
    """The server answers, but does not accept our credentials, or allows the account nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The API server, and its clock against ours."""

    info: ServerInfo
    skew_seconds: float | None
    """Time by which our clock is ahead."""
    unsure_seconds: float = 1.0
    """Uncertainty of the skew: the server's clock has whole seconds, and the request takes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RightReview:
    """A right that the agent's account should have, or should not."""

    right: AccessRight
    allowed: bool
    expected: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The cluster as seen from one node."""

    server: ServerFacts
    account: str
    rights: tuple[RightReview, ...] | Unread
    confinement: Confinement | Unread
    node_name: str
    node: Object | Unread | None
    """None: there is no Node of this name."""
    lease: Lease | Unread | None
    """Lease of the node's agent; None: there is none."""
    pods: frozenset[str] | Unread
    """``namespace/name`` of all pods on the node."""
    agent_image: str
    """Image in the agent's DaemonSet; empty where that is not known."""
    counters: CountersConfig | Unread | None = None
    """Counters of the ConfigMap that a setting names; None without such a setting."""


def doctor_client(program: str, access: ApiServer) -> ApiClient:
    """A client that waits for no answer longer than :data:`ANSWER_SECONDS`."""
    from kube.client import ApiClient, Patience, Program  # the official package loads slowly

    named = Program(
        name=program,
        version=version("gpuscape"),
        requests_per_second=REQUESTS_PER_SECOND,
        burst=REQUESTS_PER_SECOND,
    )
    patience = Patience(read_seconds=ANSWER_SECONDS, silence_seconds=ANSWER_SECONDS)
    return ApiClient(named, access, patience=patience)


def read_cluster(
    api: InspectedApi, settings: AgentSettings, node_name: str
) -> ClusterFacts | NoCluster:
    """Read the cluster's facts; ``api`` has the agent's field manager, as its policies demand."""
    try:
        server = read_server(api)
        account = own_account(api)
    except ApiError as error:
        return NoCluster(str(error), refused=isinstance(error, Unauthorized | Forbidden))
    namespace = settings.namespace
    return ClusterFacts(
        server=server,
        account=account,
        rights=value_or_unread(lambda: _rights(api, settings, account)),
        confinement=_confinement(api, settings, account, node_name),
        node_name=node_name,
        node=read_object(lambda: api.get(NODES, node_name)),
        lease=read_lease(api, node_name, namespace),
        pods=value_or_unread(lambda: frozenset(_pods(api, node_name))),
        agent_image=agent_image(api, namespace),
        counters=_counters(api, settings),
    )


def read_server(api: InspectedApi) -> ServerFacts:
    """Version and clock of the API server. Raises ApiError."""
    before = time.time()
    info = api.server_info()
    after = time.time()
    skew = None
    if info.unix_seconds is not None:
        skew = (before + after) / 2 - (info.unix_seconds + 0.5)
    return ServerFacts(info=info, skew_seconds=skew, unsure_seconds=0.5 + (after - before) / 2)


def agent_image(api: InspectedApi, namespace: str) -> str:
    """The image that the agent's DaemonSet names; empty where that is not known."""
    read = read_object(lambda: api.get(DAEMON_SETS, names.AGENT_DAEMON_SET, namespace=namespace))
    if read is None or isinstance(read, Unread):
        return ""
    containers = Pod.from_object((read.get("spec") or {}).get("template") or {}).spec.containers
    return containers[0].image if containers else ""


def read_lease(api: InspectedApi, node: str, namespace: str) -> Lease | Unread | None:
    """The Lease of a node's agent, None where it does not exist, or why it cannot be read."""
    name = names.agent_lease(node)
    return read_object(lambda: Lease.from_object(api.get(LEASES, name, namespace=namespace)))


def value_or_unread(read: Callable[[], T]) -> T | Unread:
    """The result of ``read``, or the reason why it cannot be read."""
    try:
        return read()
    except ApiError as error:
        return Unread(str(error))


def read_object(read: Callable[[], T]) -> T | Unread | None:
    """The object that ``read`` gets, None where it does not exist, or why it cannot be read."""
    try:
        return read()
    except NotFound:
        return None
    except ApiError as error:
        return Unread(str(error))


def needed_rights(settings: AgentSettings) -> Iterator[AccessRight]:
    """Rights that the agent's account needs with these settings, as in deploy/base/access.yaml."""
    home = settings.namespace
    for verb in ("get", "watch", "patch"):
        yield AccessRight(verb=verb, resource=NODES)
    for verb in ("get", "create", "update", "patch"):
        yield AccessRight(verb=verb, resource=LEASES, namespace=home)
    yield AccessRight(verb="get", resource=DAEMON_SETS, namespace=home, name=names.AGENT_DAEMON_SET)
    for verb in ("create", "patch"):
        yield AccessRight(verb=verb, resource=EVENTS, namespace=names.EVENT_NAMESPACE)
    if settings.sink == "nodefeature":
        for verb in ("get", "create", "patch"):
            yield AccessRight(verb=verb, resource=NODE_FEATURES, namespace=home)
    if settings.follows_pods:
        for verb in ("list", "watch"):
            yield AccessRight(verb=verb, resource=PODS)
    if settings.resource_slices:
        for verb in ("list", "watch"):
            yield AccessRight(verb=verb, resource=RESOURCE_SLICES)
    if settings.counters_from is not None:
        place, _, name = settings.counters_from.partition(":")
        yield AccessRight(verb="get", resource=CONFIG_MAPS, namespace=place, name=name)


def excess_rights() -> Iterator[AccessRight]:
    """Rights that an account on every node must not have: an intruder on one node has them too."""
    yield AccessRight(verb="get", resource=SECRETS)
    yield AccessRight(verb="delete", resource=PODS)
    yield AccessRight(verb="delete", resource=NODES)


def _counters(api: InspectedApi, settings: AgentSettings) -> CountersConfig | Unread | None:
    name = settings.counters_from
    if name is None:
        return None
    try:
        return read_counters(config_map_text(api, name), f"ConfigMap {name}")
    except GpuscapeError as error:
        return Unread(f"ConfigMap {name}: {error}")


def _rights(api: InspectedApi, settings: AgentSettings, account: str) -> tuple[RightReview, ...]:
    """Reviews of the rights of the agent's account, which may be another than our own."""
    agent = names.username(names.AGENT, settings.namespace)
    other_account = None if account == agent else agent
    rights = [(right, True) for right in needed_rights(settings)]
    rights += [(right, False) for right in excess_rights()]
    return tuple(
        RightReview(right=right, allowed=may(api, right, account=other_account), expected=expected)
        for right, expected in rights
    )


def _confinement(
    api: InspectedApi, settings: AgentSettings, account: str, node_name: str
) -> Confinement | Unread:
    agent = names.username(names.AGENT, settings.namespace)
    if account != agent:
        return Unread(f"the policies hold {agent}, and this runs as {account}: run it in its pod")
    features = settings.sink == "nodefeature"
    return value_or_unread(
        lambda: tried(
            api,
            node_name,
            settings.namespace,
            node_features=features,
            mig_permits=settings.mig_mode == "enforce",
        )
    )


def _pods(api: InspectedApi, node_name: str) -> Iterator[str]:
    fields = {"spec.nodeName": node_name}
    for pod in present_objects(api, PODS, fields=fields, metadata_only=True):
        yield f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def cluster_access(settings: AgentSettings) -> ApiServer:
    """Address and credentials of the cluster by the settings. Raises BadInput without a cluster."""
    from kube.credentials import find

    kubeconfig: Path | None = settings.kubeconfig
    return find(
        None if kubeconfig is None else str(kubeconfig), service_account=settings.service_account
    )
