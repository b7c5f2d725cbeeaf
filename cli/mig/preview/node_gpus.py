# SPDX-License-Identifier: Apache-2.0
"""What a Node's labels, annotations and status tell of its GPUs, and what they leave open. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from api import keys, topology_annotation
from api.mig_resources import GPU_RESOURCE, SHARED_SUFFIX, MigStrategy
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from kube.amounts.gpu_amounts import gpu_amounts
from kube.api import Object

_COUNTS: Final = keys.MODEL_COUNT_FAMILY.removesuffix("<model>")
_IS_CUT: Final = "-MIG-"
"""In the product's label where the strategy ``single`` describes MIG devices by it."""
Offers = Mapping[str, int]
"""GPU resource to devices; what is 0 is not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """The GPUs of one Node, as far as the cluster knows them."""

    ids: tuple[str, ...] = ()
    """UUIDs by place; empty where they are not known."""
    bus_ids: tuple[str, ...] = ()
    product: str = ""
    """Of all of them; empty where that is not known."""
    strategy: MigStrategy | None = None
    """The device plugin's; None: not known."""
    mig: bool | None = None
    """MIG is on for all of them, or for none; None: for a part, or not known."""
    offers: Offers
    """Allocatable now."""
    unknown: str = ""
    """Why nothing can be planned by this; empty where it can."""


def node_gpus(node: Object) -> NodeGpus:
    """What the Node tells. Never raises: what cannot be read is named in ``unknown``."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    offers = gpu_offers(node)
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


def gpu_offers(node: Object, part: str = "allocatable") -> Offers:
    """GPU resources in a Node's status; amounts that are none count as 0."""
    return gpu_amounts(((node.get("status") or {}).get(part)) or {})


def _strategy(labels: Mapping[str, str]) -> MigStrategy | None:
    """The label is left out for ``none``, by whoever writes the others."""
    if keys.MIG_CAPABLE not in labels:
        return None
    try:
        return MigStrategy(labels.get(keys.MIG_STRATEGY, MigStrategy.NONE))
    except ValueError:
        return None


def _topology(node: Object) -> TopologyAnnotation | None:
    text = (node["metadata"].get("annotations") or {}).get(keys.TOPOLOGY)
    if text is None:
        return None
    found = topology_annotation.decode(text)
    if found is None:
        raise BadInput(f"annotation {keys.TOPOLOGY} is of another major version of gpuscape")
    return found


def _product(labels: Mapping[str, str], gpus: int) -> str:
    """The one model that all GPUs are of; empty where there are several, or some are not seen."""
    models = {key.removeprefix(_COUNTS): n for key, n in labels.items() if key.startswith(_COUNTS)}
    if len(models) != 1:
        return ""
    ((model, count),) = models.items()
    return model if count == str(gpus) else ""


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
    node: Object, labels: Mapping[str, str], strategy: MigStrategy | None, gpus: int
) -> bool | None:
    """By what the device plugin has registered, sick devices too."""
    there = gpu_offers(node, "capacity")
    if strategy is MigStrategy.SINGLE and _IS_CUT in labels.get(keys.GPU_PRODUCT, ""):
        return True
    if strategy in (MigStrategy.SINGLE, MigStrategy.MIXED) and there == {GPU_RESOURCE: gpus}:
        return False
    is_cut = strategy is MigStrategy.MIXED and bool(there) and GPU_RESOURCE not in there
    return True if is_cut else None
