# SPDX-License-Identifier: Apache-2.0
"""Reads what a rollout touches, once, with the rights of whoever runs the command.

What he may not read, or the cluster does not have, is named; nothing is taken for absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from api import keys, names, state_annotation, topology_annotation
from base.errors import BadInput
from cli.failures import UNREADABLE, CommandFailure
from cli.mig.preview.agent_terms import AgentTerms, agent_terms
from cli.mig.preview.gpu_requests import PodTemplate, templates
from fleet.drain.drain_plan import DrainBlocker
from fleet.drain.drain_pod import DrainPod
from fleet.drain.drain_view import refusal
from kube.api import (
    CONFIG_MAPS,
    DAEMON_SETS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    Api,
    ApiResource,
    EvictingApi,
    Object,
)
from kube.api_errors import ApiError, Forbidden, NotFound
from kube.present_objects import present_objects

if TYPE_CHECKING:
    from mig.configs.mig_configs import MigConfigs

T = TypeVar("T")

DEPLOYMENTS: Final = ApiResource(
    group="apps", version="v1", kind="Deployment", plural="deployments"
)
CRON_JOBS: Final = ApiResource(group="batch", version="v1", kind="CronJob", plural="cronjobs")
RESOURCE_QUOTAS: Final = ApiResource(
    group="", version="v1", kind="ResourceQuota", plural="resourcequotas"
)
NODE_POOLS: Final = ApiResource(
    group="karpenter.sh", version="v1", kind="NodePool", plural="nodepools", namespaced=False
)
CLUSTER_QUEUES: Final = tuple(
    ApiResource(
        group="kueue.x-k8s.io",
        version=version,
        kind="ClusterQueue",
        plural="clusterqueues",
        namespaced=False,
    )
    for version in ("v1beta2", "v1beta1")
)
"""The newest version first."""
WORKLOADS: Final = tuple(
    ApiResource(group="kueue.x-k8s.io", version=version, kind="Workload", plural="workloads")
    for version in ("v1beta2", "v1beta1")
)
AUTOSCALER_STATUS: Final = "cluster-autoscaler-status"
"""ConfigMap. Source: kubernetes/autoscaler, cluster-autoscaler/config."""
_AUTOSCALER_NAMESPACE: Final = "kube-system"
_MOST_EVICTIONS: Final = 500
"""That the API server is asked about: at 20 requests in a second that is half a minute."""
_OPTIONAL: Final = frozenset({*CLUSTER_QUEUES, *WORKLOADS, NODE_POOLS, JOB_SETS, RESOURCE_SLICES})
"""Kinds that a cluster need not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotLookedAt:
    """Something that was not read."""

    what: str
    """Plural of the kind, or words."""
    why: str
    matters: bool = True
    """It may hide something; False where the cluster has no such kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPicture:
    """All that is judged, as it was read. Objects are as the API has them."""

    nodes: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    budgets: tuple[Object, ...] = ()
    owners: Mapping[str, Object] = field(default_factory=dict)
    """By UID."""
    templates: tuple[PodTemplate, ...] = ()
    quotas: tuple[Object, ...] = ()
    cluster_queues: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    node_pools: tuple[Object, ...] = ()
    slice_drivers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Node to drivers of its ResourceSlices."""
    holders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Node to what its agent says: key of a pod to the mask of the GPUs that it has."""
    autoscaler_status: bool = False
    agents: AgentTerms = field(default_factory=AgentTerms)
    not_looked: tuple[NotLookedAt, ...] = ()

    @property
    def shows_pods(self) -> bool:
        """Pods were read."""
        return all(one.what != PODS.plural for one in self.not_looked)


class PictureReader:
    """Reads kind after kind, and remembers what it could not."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._missed: list[NotLookedAt] = []

    def picture(self) -> ClusterPicture:
        """The cluster now. Raises CommandFailure where Nodes cannot be read, ApiError where the
        server does not answer."""
        try:
            nodes = tuple(present_objects(self._api, NODES))
        except Forbidden as error:
            raise CommandFailure(f"Nodes cannot be read: {error}", UNREADABLE) from error
        made = {
            kind.kind: tuple(self._all(kind))
            for kind in (DEPLOYMENTS, STATEFUL_SETS, CRON_JOBS, JOBS, JOB_SETS)
        }
        workloads = tuple(self._newest(WORKLOADS))
        agents = agent_terms(tuple(self._all(DAEMON_SETS)))
        owners = (*made["StatefulSet"], *made["Job"], *made["JobSet"], *self._all(REPLICA_SETS))
        return ClusterPicture(
            nodes=nodes,
            pods=tuple(self._all(PODS)),
            budgets=tuple(self._all(POD_DISRUPTION_BUDGETS)),
            owners={it["metadata"]["uid"]: it for it in owners},
            templates=tuple(self._templates({**made, "Workload": workloads})),
            quotas=tuple(self._all(RESOURCE_QUOTAS)),
            cluster_queues=tuple(self._newest(CLUSTER_QUEUES)),
            deployments=made["Deployment"],
            node_pools=tuple(self._all(NODE_POOLS)),
            slice_drivers=_drivers(self._all(RESOURCE_SLICES)),
            autoscaler_status=self._has_autoscaler_status(),
            holders=_holders(nodes, self._leases(agents.namespace)),
            agents=agents,
            not_looked=tuple(self._missed),
        )

    def _all(self, kind: ApiResource) -> list[Object]:
        try:
            return list(present_objects(self._api, kind))
        except (Forbidden, NotFound) as error:
            self._miss(kind, error)
            return []

    def _leases(self, namespace: str) -> list[Object]:
        """The agents'; without them no more is known than that pods have GPUs."""
        if not namespace:
            return []
        try:
            found = present_objects(self._api, LEASES, namespace=namespace, metadata_only=True)
            return list(found)
        except Forbidden as error:
            self._miss(LEASES, error)
            return []

    def _newest(self, kinds: tuple[ApiResource, ...]) -> list[Object]:
        """Of a kind that is served in one of these versions."""
        for kind in kinds:
            try:
                return list(present_objects(self._api, kind))
            except NotFound:
                continue
            except Forbidden as error:
                self._miss(kind, error)
                return []
        self._miss(kinds[0], NotFound(""))
        return []

    def _miss(self, kind: ApiResource, error: ApiError) -> None:
        name = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        if isinstance(error, NotFound):
            why = "the cluster has no such kind"
            self._missed.append(NotLookedAt(what=name, why=why, matters=kind not in _OPTIONAL))
        else:
            self._missed.append(NotLookedAt(what=name, why=f"you may not list them: {error}"))

    def _templates(self, made: Mapping[str, Iterable[Object]]) -> Iterator[PodTemplate]:
        for kind, objects in made.items():
            for seen in objects:
                try:
                    yield from templates(kind, seen)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    name = f"{kind} {seen['metadata'].get('namespace')}/{seen['metadata']['name']}"
                    self._missed.append(NotLookedAt(what=name, why=f"it cannot be read: {error}"))

    def _has_autoscaler_status(self) -> bool:
        try:
            self._api.get(CONFIG_MAPS, AUTOSCALER_STATUS, namespace=_AUTOSCALER_NAMESPACE)
        except NotFound:
            return False
        except Forbidden as error:
            what = f"ConfigMap {_AUTOSCALER_NAMESPACE}/{AUTOSCALER_STATUS}"
            self._missed.append(NotLookedAt(what=what, why=f"you may not read it: {error}"))
            return False
        return True


def agents_configs(api: Api, agents: AgentTerms) -> tuple[MigConfigs | None, str]:
    """The agents' configurations, and why they are not known; None for the default ones.

    Raises ApiError where the server does not answer.
    """
    if agents.source is None:
        return None, agents.unknown
    from mig.configs.mig_config_file import parse_mig_configs  # the parser loads slowly

    source = agents.source
    name = f"ConfigMap {source.namespace}/{source.name}, key {source.key}"
    try:
        found = api.get(CONFIG_MAPS, source.name, namespace=source.namespace)
    except (Forbidden, NotFound) as error:
        return None, f"the agents' configurations are in {name}, which cannot be read: {error}"
    text = (found.get("data") or {}).get(source.key)
    if text is None:
        return None, f"the agents' configurations should be in {name}, which is not there"
    try:
        return parse_mig_configs(text, name), ""
    except BadInput as error:
        return None, str(error)


def tried_evictions(
    api: EvictingApi, pods: Iterable[DrainPod]
) -> tuple[dict[str, DrainBlocker], NotLookedAt | None]:
    """What the API server says against evicting them, in a dry run: UID to blocker.

    The second: why not all were tried. Raises ApiError where it does not answer.
    """
    refused: dict[str, DrainBlocker] = {}
    wanted = list(pods)
    for pod in wanted[:_MOST_EVICTIONS]:
        try:
            api.evict(pod.name, namespace=pod.namespace, uid=pod.uid, dry_run=True)
        except ApiError as error:
            if type(error) is Forbidden:
                why = f"you may not evict pods: {error}"
                return {}, NotLookedAt(what="evictions (dry run)", why=why)
            blocker = refusal(pod, error)
            if blocker is not None:
                refused[pod.uid] = blocker
    if len(wanted) > _MOST_EVICTIONS:
        why = f"only {_MOST_EVICTIONS} of {len(wanted)} are tried"
        return refused, NotLookedAt(what="evictions (dry run)", why=why)
    return refused, None


def _holders(nodes: Iterable[Object], leases: Iterable[Object]) -> dict[str, dict[str, int]]:
    """By the agents' Leases, where their order of GPUs is that of the Node's topology."""
    by_name = {lease["metadata"]["name"]: lease["metadata"] for lease in leases}
    found: dict[str, dict[str, int]] = {}
    for node in nodes:
        meta = node["metadata"]
        lease = by_name.get(names.lease(meta["name"]), {})
        state = _decoded(state_annotation.decode, lease, keys.STATE)
        topology = _decoded(topology_annotation.decode, meta, keys.TOPOLOGY)
        if state is not None and topology is not None and state.gen == topology.gen:
            found[meta["name"]] = {key: int(mask, 16) for key, mask in state.pods.items()}
    return found


def _decoded(decode: Callable[[str], T | None], metadata: Mapping[str, Any], key: str) -> T | None:
    text = (metadata.get("annotations") or {}).get(key)
    try:
        return None if text is None else decode(text)
    except BadInput:
        return None


def _drivers(slices: Iterable[Object]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for each in slices:
        spec = each.get("spec") or {}
        if spec.get("nodeName"):
            found.setdefault(spec["nodeName"], set()).add(str(spec.get("driver")))
    return {node: frozenset(drivers) for node, drivers in found.items()}
