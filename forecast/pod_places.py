# SPDX-License-Identifier: Apache-2.0
"""GPUs that a pod would get on each node now, as the scheduler's code decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from api.gpu_request import Link, gpu_request
from api.mig_resources import GPU_RESOURCE
from forecast.fleet_reading import FleetReading
from kube.objects.pod import Container, Pod, PodSpec, RequestedAmounts
from kube.objects.pod_constraints import Toleration
from scheduler.filters import node_filters
from scheduler.filters.node_filters import LeftOutNode, NodeFilter
from scheduler.filters.taints import EQUAL, EXISTS
from scheduler.node_ranking import NodeRanker
from scheduler.placement_aims import ProductOrder
from scheduler.pod_request import PodRequest
from scheduler.score_explanation import Explanation, explain_ranks

_OWN_TOLERATION: Final = Toleration(key=GPU_RESOURCE, operator=EXISTS)
"""Toleration that the admission plugin ExtendedResourceToleration gives each pod with GPUs."""
_NOTE: Final = (
    "GPU numbers are places in the node's annotation gpuscape.io/topology. The pod is thought to"
    " ask for GPUs alone, and to tolerate the taint nvidia.com/gpu."
)
_ASSUMED: Final = ProductOrder.FASTEST
_ORDER_ASSUMED: Final = (
    "The extender's setting product-order could not be read from its Deployment:"
    f" {_ASSUMED} is assumed, the default."
)


def toleration(text: str) -> Toleration:
    """``KEY`` tolerates the taint with any value, ``KEY=VALUE`` with that one."""
    key, has_value, value = text.partition("=")
    return Toleration(key=key, operator=EQUAL if has_value else EXISTS, value=value)


def pod_places(
    fleet: FleetReading, gpus: int, *, link: Link = Link.ANY, tolerations: Sequence[Toleration] = ()
) -> Explanation:
    """The nodes for a pod of one container with so many GPUs, best first; then those that are left
    out, each with its reason. Ranked by the extender's order of products where the reading has it;
    else a note says which one is assumed."""
    requested_amounts = RequestedAmounts(limits={GPU_RESOURCE: str(gpus)})
    pod = Pod(
        spec=PodSpec(
            containers=(Container(name="main", resources=requested_amounts),),
            tolerations=(_OWN_TOLERATION, *tolerations),
        )
    )
    divided = node_filters.filtered(pod, fleet.candidates, fleet.loads)
    name = f"a pod of {gpus} GPU{'s' if gpus > 1 else ''}"
    request = PodRequest(namespace="", name=name, uid="", wish=gpu_request(gpus, link=link))
    short = {
        node.node: node for node in fleet.nodes if node.free is not None and len(node.free) < gpus
    }
    ranked = [candidate for candidate in divided.candidates if candidate not in short]
    ranker = NodeRanker(fleet.cache, fleet.tables, fleet.product_order or _ASSUMED)
    explanation = explain_ranks(request, ranker.judge(request, ranked), fleet.tables)
    too_few = (
        LeftOutNode(
            node=candidate,
            filter=NodeFilter.RESOURCES,
            reasons=(f"Insufficient {GPU_RESOURCE}",),
            why=f"{len(short[candidate].free or ())} of {short[candidate].gpus} GPUs are free",
        )
        for candidate in divided.candidates
        if candidate in short
    )
    left_out = sorted((*divided.left_out, *too_few), key=lambda left_out_node: left_out_node.node)
    notes = (_NOTE,) if fleet.product_order else (_NOTE, _ORDER_ASSUMED)
    return msgspec.structs.replace(
        explanation, pod=name, filtered=True, left_out=tuple(left_out), notes=notes
    )
