# SPDX-License-Identifier: Apache-2.0
"""What ``gpuscape scheduler explain`` prints of four nodes made up here, for a page."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from typing import Any, Final

import msgspec

from agent.settings.agent_settings import AgentSettings
from agent.single_reading import take_snapshot
from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation
from api.topology_annotation import TopologyAnnotation
from cli import terminal
from cli.scheduler.explain_command import explanation_table
from kube.objects.node import Node
from kube.objects.pod import Pod
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.pod_gpu_request import Rules, ask
from scheduler.filters import node_filters
from scheduler.node_ranking import NodeRanker
from scheduler.score_explanation import explain_ranks

_MACHINE: Final = "dgx1-v100"
_FREE: Final = {"dgx1-a": {0, 5}, "dgx1-b": {2, 3}, "dgx1-c": {0, 1, 2, 3}, "dgx1-d": {0, 3}}
"""The free GPUs of each node."""
_CORDONED: Final = ("dgx1-d",)
_RESOURCES: Final = {"limits": {"nvidia.com/gpu": "2"}}
_POD: Final = {
    "metadata": {"name": "train-0", "namespace": "default", "uid": "0"},
    "spec": {"containers": [{"name": "main", "resources": _RESOURCES}]},
}


def explained() -> str:
    """The table for a pod of two GPUs, worked out as the command does it."""
    tables = ScoreTables()
    cache = NodeCache(tables, clock=lambda: 0.0)
    snapshot = take_snapshot(replace(AgentSettings(), simulate=_MACHINE))
    topology = topology_of(snapshot)
    for name, free in _FREE.items():
        cache.node(name, topology=topology_annotation.encode(topology_of(snapshot)))
        cache.lease(name, _lease(name, topology, free), 0.0)
    for source in CacheSource:
        cache.mark_synced(source)
    request = ask(Pod.from_object(_POD), Rules())
    if request is None:
        raise SystemExit("the pod asks for no GPU")
    nodes = [Node.from_object(_node(name)) for name in _FREE]
    divided = node_filters.filtered(Pod.from_object(_POD), nodes, {})
    explanation = explain_ranks(
        request, NodeRanker(cache, tables).judge(request, divided.candidates), tables
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        terminal.show_table(
            explanation_table(
                msgspec.structs.replace(explanation, left_out=divided.left_out), wide=False
            )
        )
    return printed.getvalue()


def _node(name: str) -> dict[str, Any]:
    """The Node."""
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": name in _CORDONED},
        "status": {"allocatable": {"pods": "110", "nvidia.com/gpu": "8"}},
    }


def _lease(node: str, topology: TopologyAnnotation, free: set[int]) -> dict[str, Any]:
    """The Lease of a node's agent."""
    used = sum(1 << gpu for gpu in range(topology.n) if gpu not in free)
    annotation = StateAnnotation(
        v=state_annotation.VERSION, gen=topology.gen, seq=1, ok="ff", used=f"{used:02x}", pods={}
    )
    return {
        "metadata": {
            "name": names.agent_lease(node),
            "uid": node,
            "annotations": {keys.STATE: state_annotation.encode(annotation)},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 180, "renewTime": "0"},
    }
