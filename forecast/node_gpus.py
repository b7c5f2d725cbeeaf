# SPDX-License-Identifier: Apache-2.0
"""GPUs of a Node, from its labels, annotations and status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from api import keys, topology_annotation
from api.mig_resources import GPU_RESOURCE, SHARED_SUFFIX, MigStrategy
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from kube.amounts.gpu_amounts import gpu_amounts
from kube.objects.node import Node

_COUNTS: Final = keys.MODEL_COUNT_FAMILY.removesuffix("<model>")
_IS_CUT: Final = "-MIG-"
"""Mark in the product label of MIG devices, which the strategy ``single`` writes."""
Offers = Mapping[str, int]
"""GPU resource to number of devices; without resources that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """The GPUs of one Node, as far as the cluster knows them."""

    ids: tuple[str, ...] = ()
    """UUIDs in the order of the GPUs' places; empty where they are not known."""
    bus_ids: tuple[str, ...] = ()
    product: str = ""
    """Product name of all GPUs; empty where it is not known, or differs."""
    strategy: MigStrategy | None = None
    """The device plugin's MIG strategy; None where it is not known."""
    mig: bool | None = None
    """Whether MIG is on for all GPUs; None where it is on for some of them, or not known."""
    offers: Offers
    """Resources that are allocatable now."""
    unknown: str = ""
    """Why these GPUs cannot be planned for; empty where they can."""


def node_gpus(node: Node) -> NodeGpus:
    """Read the GPUs of a Node. Never raises: what cannot be read is named in ``unknown``."""
    labels, offers = node.metadata.labels, gpu_amounts(node.status.allocatable)
    strategy = _strategy(labels)
    try:
        topology = _topology(node)
    except BadInput as error:
        return NodeGpus(offers=offers, strategy=strategy, unknown=str(error))
    if topology is None:
        why = f"it has no annotation {keys.TOPOLOGY}: does an agent run there?"
        return NodeGpus(offers=offers, strategy=strategy, unknown=why)
    product = _product(labels, topology.n)
    return NodeGpus(
        ids=topology.ids,
        bus_ids=topology.bus,
        product=product,
        strategy=strategy,
        mig=_mig(node, labels, strategy, topology.n),
        offers=offers,
        unknown=_unknown(labels, offers, product, topology, strategy),
    )


def _strategy(labels: Mapping[str, str]) -> MigStrategy | None:
    """MIG strategy from the label, which is absent for ``none``; None where it is not known."""
    if keys.MIG_CAPABLE not in labels:
        return None
    try:
        return MigStrategy(labels.get(keys.MIG_STRATEGY, MigStrategy.NONE))
    except ValueError:
        return None


def _topology(node: Node) -> TopologyAnnotation | None:
    text = node.metadata.annotations.get(keys.TOPOLOGY)
    if text is None:
        return None
    topology = topology_annotation.decode(text)
    if topology is None:
        raise BadInput(f"annotation {keys.TOPOLOGY} is of another major version of gpuscape")
    return topology


def _product(labels: Mapping[str, str], gpu_count: int) -> str:
    """Model of all GPUs; empty where there are several models, or GPUs without a label."""
    models = {key.removeprefix(_COUNTS): n for key, n in labels.items() if key.startswith(_COUNTS)}
    if len(models) != 1:
        return ""
    ((model, count),) = models.items()
    return model if count == str(gpu_count) else ""


def _unknown(
    labels: Mapping[str, str],
    offers: Offers,
    product: str,
    topology: TopologyAnnotation,
    strategy: MigStrategy | None,
) -> str:
    if topology.miss or len(topology.ids) != topology.n:
        return "its agent does not know all of its GPUs now"
    if not product:
        return "its GPUs are of several models, or their model is not known"
    if strategy is None:
        return f"the device plugin's MIG strategy is not known: no label {keys.MIG_CAPABLE}"
    shared = [name for name in offers if name.endswith(SHARED_SUFFIX)]
    shared += [
        key
        for key, count in labels.items()
        if key.endswith(f".{keys.REPLICAS}") and count.isdigit() and int(count) > 1
    ]
    return f"its GPUs are shared out ({min(shared)})" if shared else ""


def _mig(
    node: Node, labels: Mapping[str, str], strategy: MigStrategy | None, gpu_count: int
) -> bool | None:
    """Whether MIG is on for all GPUs, by the resources that the device plugin has registered.

    Unhealthy devices count too. None where it is on for some GPUs, or not known.
    """
    capacity = gpu_amounts(node.status.capacity)
    if strategy is MigStrategy.SINGLE and _IS_CUT in labels.get(keys.GPU_PRODUCT, ""):
        return True
    if strategy in (MigStrategy.SINGLE, MigStrategy.MIXED) and capacity == {
        GPU_RESOURCE: gpu_count
    }:
        return False
    is_cut = strategy is MigStrategy.MIXED and bool(capacity) and GPU_RESOURCE not in capacity
    return True if is_cut else None
