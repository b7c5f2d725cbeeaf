# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a cluster as agents publish them on Nodes and Leases; optionally with pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from api import keys, names, state_annotation, topology_annotation
from api.gpu_request import gpu_request
from api.mig_resources import GPU_RESOURCE, MIG_PREFIX
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from base.text.rfc3339 import unix_seconds
from discovery.model import Topology
from exporters.gpuscape.fragmentation import free as free_set
from forecast.scheduler_terms import deployed_product_order
from kube.amounts.gpu_amounts import gpu_amounts
from kube.amounts.pod_requests import Amounts, pod_requests
from kube.api import DEPLOYMENTS, LEASES, NODES, PODS, InspectedApi, Object
from kube.api_errors import Forbidden
from kube.label_selector import LabelSelector
from kube.lease import Lease
from kube.objects.node import Node
from kube.objects.pod import Pod
from kube.objects.typed_object import condition_of
from kube.present_objects import present_objects
from placement.class_tables import ScoreTables
from placement.masks import members, pairs, subsets
from placement.score_table import ScoreTable
from placement.shape import shape
from scheduler.cluster.node_cache import CachedNode, CacheSource, NodeCache
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.cluster.pod_gpu_request import Rules, ask
from scheduler.filters import resource_fit
from scheduler.filters.resource_fit import NodeLoad
from scheduler.filters.taints import KEEPING_OFF
from scheduler.placement_aims import ProductOrder
from scheduler.score_explanation import REASONS

_BOUND: Final = {"spec.nodeName!": ""}
_RULES: Final = Rules()


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has GPUs of a node, wholly or in part."""

    pod: str | None
    """``namespace/name``; None where pods were not read."""
    key: str
    """The pod as the agent's Lease has it: the start of a hash of its name."""
    gpus: tuple[int, ...]


class MigSlices(msgspec.Struct, frozen=True, kw_only=True):
    """MIG devices of one resource on a node."""

    resource: str
    total: int
    free: int | None
    """Number of free devices; None where pods were not read."""


class LinkedSet(msgspec.Struct, frozen=True, kw_only=True):
    """The largest set of free GPUs of which every two have NVLinks; the fastest of these."""

    gpus: tuple[int, ...]
    gbps: float
    """Bandwidth of the set's NVLink rings together, as the scheduler scores it; 0 for one GPU."""


class FreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """Free GPUs of a node. GPU numbers are places in its topology annotation."""

    node: str
    product: str
    """Value of the label nvidia.com/gpu.product; empty where there is none."""
    gpus: int
    """Number of all GPUs, working or not."""
    free: tuple[int, ...] | None
    """GPUs that a pod could get whole now; None where that is not known."""
    linked: LinkedSet | None
    mig: tuple[MigSlices, ...]
    holders: tuple[GpuHolder, ...]
    cordoned: bool
    ready: bool
    why_unknown: str = ""
    """Why it is not known which GPUs are free."""
    taints: tuple[str, ...] = ()
    """Taints that keep pods away which do not tolerate them."""

    @property
    def whole_free(self) -> bool:
        """Whether no pod has a GPU of the node."""
        return self.free is not None and len(self.free) == self.gpus

    @property
    def takes_pods(self) -> bool:
        """Whether the node is ready and not cordoned."""
        return self.ready and not self.cordoned


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReading:
    """The fleet at one moment, and what scores its nodes."""

    nodes: tuple[FreeNode, ...]
    """Nodes with GPUs, sorted by name."""
    candidates: tuple[Node, ...]
    """Objects of these nodes, as the scheduler's filters read them."""
    loads: Mapping[str, NodeLoad]
    """Node to what its bound pods hold of it; empty where pods were not read."""
    cache: NodeCache
    tables: ScoreTables
    has_agents: bool
    """Whether any agent has published something."""
    product_order: ProductOrder | None = None
    """Setting of the cluster's extender; None where it is not known, or was not read."""


@dataclass(slots=True)
class _Pods:
    """Names and requests of the bound pods that count."""

    names: dict[tuple[str, str], str] = field(default_factory=dict)
    """(node, key) to ``namespace/name``."""
    requests: dict[str, list[Amounts]] = field(default_factory=dict)


def read_fleet(
    api: InspectedApi,
    *,
    namespace: str = names.NAMESPACE,
    selector: LabelSelector | None = None,
    with_pods: bool = False,
    with_order: bool = False,
) -> FleetReading:
    """The nodes with GPUs that the selector selects. Raises ApiError.

    ``namespace``: where the agents' Leases are, and the extender's Deployment. ``with_order``: read
    that too, for the extender's order of products; it counts as not known where reading it is
    forbidden. An agent is silent when its Lease was not renewed
    for as long as it lasts, by the server's clock.
    """
    tables = ScoreTables()
    cache = NodeCache(tables, clock=lambda: 0.0)
    now = api.server_info().unix_seconds
    objects = [
        node
        for node in map(Node.from_object, present_objects(api, NODES))
        if selector is None or selector.matches(node.metadata.labels)
    ]
    for node in objects:
        _take_node(cache, node)
    node_names = {node.name for node in objects}
    node_by_lease = {names.agent_lease(node): node for node in node_names}
    leases = 0
    for lease in present_objects(api, LEASES, namespace=namespace):
        name = str(lease["metadata"]["name"])
        if name.startswith(names.LEASE_PREFIX):
            leases += 1
            if name in node_by_lease:
                cache.lease(node_by_lease[name], lease, -_age(lease, now))
    pods = _read_pods(api, cache, node_names) if with_pods else None
    for source in CacheSource:
        cache.mark_synced(source)
    shown = [node for node in objects if _has_gpus(node)]
    sets = _LinkedSets(tables)
    free_nodes = [_free_node(node, cache, sets, pods) for node in shown]
    loads = (
        {}
        if pods is None
        else {node: resource_fit.node_load(amounts) for node, amounts in pods.requests.items()}
    )
    return FleetReading(
        nodes=tuple(sorted(free_nodes, key=lambda node: node.node)),
        candidates=tuple(shown),
        loads=loads,
        cache=cache,
        tables=tables,
        has_agents=bool(leases) or any(_topology_text(node) for node in objects),
        product_order=_product_order(api, namespace) if with_order else None,
    )


def _product_order(api: InspectedApi, namespace: str) -> ProductOrder | None:
    try:
        return deployed_product_order(tuple(present_objects(api, DEPLOYMENTS, namespace=namespace)))
    except Forbidden:
        return None  # people who see nodes may not see this: the rest is of use without


def _take_node(cache: NodeCache, node: Node) -> None:
    labels = node.metadata.labels
    cache.node(
        node.name,
        topology=_topology_text(node),
        clique=labels.get(keys.CLIQUE),
        product=labels.get(keys.GPU_PRODUCT),
    )


def _age(lease: Object, now: float | None) -> float:
    """Seconds since the Lease was renewed; 0 where that is not known."""
    renewed = unix_seconds(Lease.from_object(lease).spec.renew_time)
    return 0.0 if now is None or renewed is None else max(0.0, now - renewed)


def _read_pods(api: InspectedApi, cache: NodeCache, node_names: set[str]) -> _Pods:
    """The bound pods of these nodes that hold something."""
    pods = _Pods()
    for manifest in present_objects(api, PODS, fields=_BOUND):
        pod = Pod.from_object(manifest)
        node, meta = pod.spec.node_name, pod.metadata
        if node not in node_names or pod.is_finished:
            continue
        key = state_annotation.pod_key(meta.namespace, meta.name)
        pods.names[node, key] = meta.full_name
        pods.requests.setdefault(node, []).append(pod_requests(pod.spec))
        gpu_request = ask(pod, _RULES)
        if gpu_request is not None:
            cache.pod(gpu_request, node, bound_at=pod.bound_at)
    return pods


def _topology_text(node: Node) -> str | None:
    return node.metadata.annotations.get(keys.TOPOLOGY)


def _has_gpus(node: Node) -> bool:
    """Whether the node offers GPUs, or an agent has described some."""
    topology = _topology(node)
    if topology is not None and topology.n:
        return True
    return bool(gpu_amounts(node.status.allocatable))


def _topology(node: Node) -> TopologyAnnotation | None:
    """The annotation; None where there is none that can be read."""
    text = _topology_text(node)
    try:
        return None if text is None else topology_annotation.decode(text)
    except BadInput:
        return None


def _is_mig(resource: str) -> bool:
    return resource.startswith(MIG_PREFIX)


def _free_node(node: Node, cache: NodeCache, sets: _LinkedSets, pods: _Pods | None) -> FreeNode:
    name, topology = node.name, _topology(node)
    detail = cache.detail(name)
    view = NoView.UNKNOWN_NODE if detail is None else detail.view
    offers = gpu_amounts(node.status.allocatable)
    return FreeNode(
        node=name,
        product=node.metadata.labels.get(keys.GPU_PRODUCT, ""),
        gpus=offers.get(GPU_RESOURCE, 0) if topology is None else topology.n,
        free=members(view.free) if isinstance(view, ScoringView) else None,
        linked=sets.linked_set(view, topology)
        if isinstance(view, ScoringView) and topology
        else None,
        mig=tuple(_mig(name, offers, pods)),
        holders=() if detail is None else tuple(_holders(name, detail, pods)),
        cordoned=node.spec.unschedulable,
        ready=_is_ready(node),
        why_unknown=REASONS[view] if isinstance(view, NoView) else "",
        taints=tuple(_taints(node)),
    )


def _is_ready(node: Node) -> bool:
    """Whether the kubelet reports the node as ready; without a report it counts as ready."""
    condition = condition_of(node.status.conditions, "Ready")
    return condition is None or condition.status == "True"


def _taints(node: Node) -> Iterable[str]:
    for taint in node.spec.taints:
        if taint.effect in KEEPING_OFF and not taint.key.startswith("node.kubernetes.io/"):
            yield f"{taint.key}={taint.value}" if taint.value else taint.key


def _mig(node: str, offers: Mapping[str, int], pods: _Pods | None) -> Iterable[MigSlices]:
    taken: Counter[str] = Counter()
    for amounts in () if pods is None else pods.requests.get(node, ()):
        taken.update(
            {resource: int(amount) for resource, amount in amounts.items() if _is_mig(resource)}
        )
    for resource, total in sorted(offers.items()):
        if _is_mig(resource):
            free = None if pods is None else max(0, total - taken[resource])
            yield MigSlices(resource=resource, total=total, free=free)


def _holders(node: str, detail: CachedNode, pods: _Pods | None) -> Iterable[GpuHolder]:
    """Pods by their first GPU; a bound pod that the state does not name yet is left out."""
    held = {} if detail.state is None else detail.state.pods
    for key, mask in sorted(held.items(), key=lambda holding: (members(holding[1]), holding[0])):
        pod = None if pods is None else pods.names.get((node, key))
        yield GpuHolder(pod=pod, key=key, gpus=members(mask))


class _LinkedSets:
    """Largest linked sets, worked out once for all nodes that are alike."""

    def __init__(self, tables: ScoreTables) -> None:
        self._tables = tables
        self._sets: dict[tuple[str, int], LinkedSet | None] = {}

    def linked_set(self, view: ScoringView, topology: TopologyAnnotation) -> LinkedSet | None:
        """The largest linked set of a node's free GPUs; None where fewer than two are linked."""
        place = view.gen, view.free
        if place not in self._sets:
            table = self._tables.find(view.gen)
            self._sets[place] = None if table is None else _largest(view.free, topology, table)
        return self._sets[place]


def _largest(free: int, topology: TopologyAnnotation, table: ScoreTable) -> LinkedSet | None:
    matrix = shape(topology).nvlinks
    known = Topology(gpus=topology.bus, nvlinks=matrix)
    size = free_set(known, {topology.bus[index] for index in members(free)}).island
    if size < 2:
        return None
    best = LinkedSet(gpus=(), gbps=0.0)
    ideal = table.ideal(gpu_request(size))
    for group in subsets(free, size):
        if all(matrix[i][j] for i, j in pairs(group)):
            gbps = table.gbps(group)
            if gbps > best.gbps or not best.gpus:
                best = LinkedSet(gpus=members(group), gbps=gbps)
            if gbps >= ideal:
                break
    return best
