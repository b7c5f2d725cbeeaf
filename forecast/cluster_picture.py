# SPDX-License-Identifier: Apache-2.0
"""Reads the objects that a rollout affects, once, with the rights of the command's user.

Kinds that the user may not list, or that the cluster does not have, are named in the picture: an
object that could not be read never counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from api import keys, names, state_annotation, topology_annotation
from base.errors import BadInput, Unreadable
from fleet.drain.drain_blocker import DrainBlocker
from fleet.drain.drain_pod import DrainPod
from fleet.drain.drain_view import refused_eviction
from forecast.agent_terms import AgentTerms, agent_terms
from forecast.gpu_requests import PodTemplate, pod_templates
from kube.amounts.pod_requests import pod_requests
from kube.api import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
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
from kube.objects.pod import Pod
from kube.present_objects import present_objects

if TYPE_CHECKING:
    from mig.configs.mig_configs import MigConfigs

T = TypeVar("T")

CRON_JOBS: Final = ApiResource(group="batch", version="v1", kind="CronJob")
RESOURCE_QUOTAS: Final = ApiResource(group="", version="v1", kind="ResourceQuota")
NODE_POOLS: Final = ApiResource(
    group="karpenter.sh", version="v1", kind="NodePool", namespaced=False
)
CLUSTER_QUEUES: Final = ApiResource(
    group="kueue.x-k8s.io",
    version="v1beta2",
    kind="ClusterQueue",
    namespaced=False,
    older_versions=("v1beta1",),
)
WORKLOADS: Final = ApiResource(
    group="kueue.x-k8s.io", version="v1beta2", kind="Workload", older_versions=("v1beta1",)
)
AUTOSCALER_STATUS: Final = "cluster-autoscaler-status"
"""ConfigMap. Source: kubernetes/autoscaler, cluster-autoscaler/config."""
_AUTOSCALER_NAMESPACE: Final = "kube-system"
_MAX_EVICTIONS: Final = 500
"""Number of evictions tried in a dry run at most: at 20 requests a second half a minute."""
_OPTIONAL: Final = frozenset({CLUSTER_QUEUES, WORKLOADS, NODE_POOLS, JOB_SETS, RESOURCE_SLICES})
"""Kinds that a cluster need not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadPart:
    """A kind or an object that was not read."""

    what: str
    """Plural of the kind, or a name for people."""
    why: str
    matters: bool = True
    """Whether it may hide something; False where the cluster has no such kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPicture:
    """The cluster's objects that a preview is made from, as the API returns them."""

    nodes: tuple[Object, ...] = ()
    pods: tuple[Pod, ...] = ()
    budgets: tuple[Object, ...] = ()
    owners: Mapping[str, Object] = field(default_factory=dict)
    """Controllers of pods, by UID."""
    templates: tuple[PodTemplate, ...] = ()
    quotas: tuple[Object, ...] = ()
    cluster_queues: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    node_pools: tuple[Object, ...] = ()
    slice_drivers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Node to drivers of its ResourceSlices."""
    holders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Node to the pods that have GPUs, from its agent: key of a pod to the mask of its GPUs."""
    autoscaler_status: bool = False
    agents: AgentTerms = field(default_factory=AgentTerms)
    unread_parts: tuple[UnreadPart, ...] = ()

    @property
    def shows_pods(self) -> bool:
        """Whether pods were read."""
        return all(unread.what != PODS.plural for unread in self.unread_parts)


class PictureReader:
    """Reads the cluster kind after kind, and notes the kinds that it could not read."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._not_read: list[UnreadPart] = []

    def picture(self) -> ClusterPicture:
        """Read the cluster.

        Raises Unreadable where Nodes cannot be read, ApiError where the server does not
        answer.
        """
        try:
            nodes = tuple(present_objects(self._api, NODES))
        except Forbidden as error:
            raise Unreadable(f"Nodes cannot be read: {error}") from error
        objects_by_kind = {
            kind.kind: tuple(self._all(kind))
            for kind in (DEPLOYMENTS, STATEFUL_SETS, CRON_JOBS, JOBS, JOB_SETS)
        }
        workloads = tuple(self._all(WORKLOADS))
        agents = agent_terms(tuple(self._all(DAEMON_SETS)))
        owners = (
            *objects_by_kind["StatefulSet"],
            *objects_by_kind["Job"],
            *objects_by_kind["JobSet"],
            *self._all(REPLICA_SETS),
        )
        return ClusterPicture(
            nodes=nodes,
            pods=tuple(self._pods()),
            budgets=tuple(self._all(POD_DISRUPTION_BUDGETS)),
            owners={owner["metadata"]["uid"]: owner for owner in owners},
            templates=tuple(self._templates({**objects_by_kind, "Workload": workloads})),
            quotas=tuple(self._all(RESOURCE_QUOTAS)),
            cluster_queues=tuple(self._all(CLUSTER_QUEUES)),
            deployments=objects_by_kind["Deployment"],
            node_pools=tuple(self._all(NODE_POOLS)),
            slice_drivers=_drivers(self._all(RESOURCE_SLICES)),
            autoscaler_status=self._has_autoscaler_status(),
            holders=_holders(nodes, self._leases(agents.namespace)),
            agents=agents,
            unread_parts=tuple(self._not_read),
        )

    def _all(self, kind: ApiResource) -> list[Object]:
        try:
            return list(present_objects(self._api, kind))
        except (Forbidden, NotFound) as error:
            self._note_unread(kind, error)
            return []

    def _pods(self) -> Iterator[Pod]:
        for seen in self._all(PODS):
            try:
                pod = Pod.from_object(seen)
                pod_requests(pod.spec)
            except BadInput as error:
                self._note_damaged("Pod", seen, error)
            else:
                yield pod

    def _leases(self, namespace: str) -> list[Object]:
        """Leases of the agents, from which it is known which GPUs a pod has."""
        if not namespace:
            return []
        try:
            leases = present_objects(self._api, LEASES, namespace=namespace, metadata_only=True)
            return list(leases)
        except Forbidden as error:
            self._note_unread(LEASES, error)
            return []

    def _note_unread(self, kind: ApiResource, error: ApiError) -> None:
        name = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        if isinstance(error, NotFound):
            why = "the cluster has no such kind"
            self._not_read.append(UnreadPart(what=name, why=why, matters=kind not in _OPTIONAL))
        else:
            self._not_read.append(UnreadPart(what=name, why=f"you may not list them: {error}"))

    def _note_damaged(self, kind: str, written: Object, error: Exception) -> None:
        meta = written["metadata"]
        name = f"{kind} {meta.get('namespace')}/{meta['name']}"
        self._not_read.append(UnreadPart(what=name, why=f"it cannot be read: {error}"))

    def _templates(self, objects_by_kind: Mapping[str, Iterable[Object]]) -> Iterator[PodTemplate]:
        for kind, objects in objects_by_kind.items():
            for manifest in objects:
                try:
                    yield from pod_templates(kind, manifest)
                except BadInput as error:
                    self._note_damaged(kind, manifest, error)

    def _has_autoscaler_status(self) -> bool:
        try:
            self._api.get(CONFIG_MAPS, AUTOSCALER_STATUS, namespace=_AUTOSCALER_NAMESPACE)
        except NotFound:
            return False
        except Forbidden as error:
            name = f"ConfigMap {_AUTOSCALER_NAMESPACE}/{AUTOSCALER_STATUS}"
            self._not_read.append(UnreadPart(what=name, why=f"you may not read it: {error}"))
            return False
        return True


def read_agents_configs(api: Api, agents: AgentTerms) -> tuple[MigConfigs | None, str]:
    """Read the agents' configurations, None for the default ones, and why they are not known.

    Raises ApiError where the server does not answer.
    """
    if agents.source is None:
        return None, agents.unknown
    from mig.configs.mig_config_file import parse_mig_configs  # the parser loads slowly

    source = agents.source
    name = f"ConfigMap {source.namespace}/{source.name}, key {source.key}"
    try:
        config_map = api.get(CONFIG_MAPS, source.name, namespace=source.namespace)
    except (Forbidden, NotFound) as error:
        return None, f"the agents' configurations are in {name}, which cannot be read: {error}"
    text = (config_map.get("data") or {}).get(source.key)
    if text is None:
        return None, f"the agents' configurations should be in {name}, which is not there"
    try:
        return parse_mig_configs(text, name, agents.overlap), ""
    except BadInput as error:
        return None, str(error)


def try_evictions(
    api: EvictingApi, pods: Iterable[DrainPod]
) -> tuple[dict[str, DrainBlocker], UnreadPart | None]:
    """Try to evict the pods in a dry run: UID to blocker, for the evictions that are refused.

    The second value says why not all were tried. Raises ApiError where the server does not answer.
    """
    blockers: dict[str, DrainBlocker] = {}
    candidates = list(pods)
    for pod in candidates[:_MAX_EVICTIONS]:
        try:
            api.evict(pod.meta.name, namespace=pod.meta.namespace, uid=pod.meta.uid, dry_run=True)
        except ApiError as error:
            if type(error) is Forbidden:
                why = f"you may not evict pods: {error}"
                return {}, UnreadPart(what="evictions (dry run)", why=why)
            blocker = refused_eviction(pod, error)
            if blocker is not None:
                blockers[pod.meta.uid] = blocker
    if len(candidates) > _MAX_EVICTIONS:
        why = f"only {_MAX_EVICTIONS} of {len(candidates)} are tried"
        return blockers, UnreadPart(what="evictions (dry run)", why=why)
    return blockers, None


def _holders(nodes: Iterable[Object], leases: Iterable[Object]) -> dict[str, dict[str, int]]:
    """GPUs of the pods, from the agents' Leases that count GPUs as the Node's topology does."""
    lease_by_name = {lease["metadata"]["name"]: lease["metadata"] for lease in leases}
    masks_by_node: dict[str, dict[str, int]] = {}
    for node in nodes:
        meta = node["metadata"]
        lease = lease_by_name.get(names.agent_lease(meta["name"]), {})
        state = _decoded(state_annotation.decode, lease, keys.STATE)
        topology = _decoded(topology_annotation.decode, meta, keys.TOPOLOGY)
        if state is not None and topology is not None and state.gen == topology.gen:
            masks_by_node[meta["name"]] = {key: int(mask, 16) for key, mask in state.pods.items()}
    return masks_by_node


def _decoded(decode: Callable[[str], T | None], metadata: Mapping[str, Any], key: str) -> T | None:
    text = (metadata.get("annotations") or {}).get(key)
    try:
        return None if text is None else decode(text)
    except BadInput:
        return None


def _drivers(slices: Iterable[Object]) -> dict[str, frozenset[str]]:
    drivers_by_node: dict[str, set[str]] = {}
    for resource_slice in slices:
        spec = resource_slice.get("spec") or {}
        if spec.get("nodeName"):
            drivers_by_node.setdefault(spec["nodeName"], set()).add(str(spec.get("driver")))
    return {node: frozenset(drivers) for node, drivers in drivers_by_node.items()}
