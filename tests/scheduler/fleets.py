# SPDX-License-Identifier: Apache-2.0
"""What a cluster tells of its nodes, in short; only the facts that matter."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from api import keys, state_annotation, topology_annotation
from api.gpu_request import GpuRequest, gpu_request
from api.topology_annotation import TopologyAnnotation
from kube.api import Object
from labelers.annotations import topology_of
from placement.masks import members, union
from placement.score_table import PlacementOutcome
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.predictions import PredictionCheck
from scheduler.pod_request import PodRequest
from tests.observed import observed

MACHINE = "a100-pcie-pairs"
"""Eight GPUs."""
ALL = 0xFF
DEADLINE_SECONDS = 30.0


class LowestFirst:
    """A table of nodes that always give the lowest free GPUs out."""

    def likely(self, free: int, wish: GpuRequest) -> int:
        """See :class:`scheduler.cluster.free_gpus.LikelySets`."""
        return union(members(free)[: wish.gpus])

    def known(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:
        """See :class:`scheduler.cluster.free_gpus.LikelySets`."""
        sets = {self.likely(free, wish): Fraction(1)}
        return PlacementOutcome(sets=sets, reported=sets, taken=100)


class Unknown(LowestFirst):
    """One whose outcomes are not worked out yet."""

    def known(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:  # noqa: ARG002
        """See :class:`scheduler.cluster.free_gpus.LikelySets`."""
        return None


class LowestTables:
    """The same table for every class; forgets all where ``lost``."""

    lost = False

    def add(self, annotation: TopologyAnnotation) -> str:
        """See :class:`scheduler.cluster.node_record.TableLookup`."""
        return topology_annotation.generation(annotation)

    def find(self, gen: str) -> LowestFirst | None:
        """See :class:`scheduler.cluster.node_record.TableLookup`."""
        return None if self.lost or not gen else LowestFirst()


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return self.now


@dataclass
class Fleet:
    """A cache, its clock, and what landed."""

    clock: Clock = field(default_factory=Clock)
    tables: LowestTables = field(default_factory=LowestTables)
    landed: list[PredictionCheck] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = NodeCache(self.tables, landed=self.landed.append, clock=self.clock)

    def with_node(self, name: str = "a", clique: str | None = None, **said: Any) -> Fleet:
        """Add a node whose agent says this of it; see :func:`lease`."""
        self.cache.node(name, topology=topology(), clique=clique)
        self.says(name, **said)
        return self

    def says(self, name: str = "a", **said: Any) -> None:
        """The node's agent renews its Lease."""
        self.cache.lease(name, lease(**said), self.clock.now)

    def bind(self, ask: PodRequest, node: str = "a", **more: Any) -> None:
        """A pod is bound."""
        self.cache.pod(ask, node, **more)


def until(holds: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@cache
def topology(machine: str = MACHINE) -> str:
    """The annotation of a simulated machine."""
    return topology_annotation.encode(topology_of(observed(machine).snapshot))


def gen(machine: str = MACHINE) -> str:
    """Its topology class."""
    found = topology_annotation.decode(topology(machine))
    assert found is not None
    return found.gen


def changed(**keys: Any) -> str:
    """The annotation with other values for some keys."""
    return msgspec.json.encode(msgspec.json.decode(topology()) | keys).decode()


def said(
    pods: Mapping[str, int] | None = None,
    *,
    ok: int = ALL,
    used: int | None = None,
    of: str | None = None,
    seq: int = 1,
    namespace: str = "default",
) -> str:
    """A state annotation; ``pods`` by name and what they use."""
    masks = {state_annotation.pod_key(namespace, name): mask for name, mask in (pods or {}).items()}
    taken = 0
    for mask in masks.values():
        taken |= mask
    return state_annotation.encode(
        state_annotation.StateAnnotation(
            v=1,
            gen=of or gen(),
            seq=seq,
            ok=f"{ok:02x}",
            used=f"{taken if used is None else used:02x}",
            pods={key: f"{mask:02x}" for key, mask in masks.items()},
        )
    )


def lease(
    *,
    renewed: object = 0,
    holder: str = "agent",
    seconds: int = 180,
    text: str | None = None,
    **facts: Any,
) -> Object:
    """An agent's Lease: its state in ``text``, or as :func:`said` writes it."""
    return {
        "metadata": {
            "name": "gpuscape-a",
            "uid": "lease",
            "annotations": {keys.STATE: said(**facts) if text is None else text},
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "renewTime": str(renewed),
        },
    }


def pod(
    name: str, *gpus: int, uid: str | None = None, job: str | None = None, **more: Any
) -> PodRequest:
    """A pod whose containers ask for so many GPUs each; two where nothing is said."""
    return PodRequest(
        namespace="default",
        name=name,
        uid=uid or f"uid-{name}",
        wish=gpu_request(*(gpus or (2,)), **more),
        job=job,
    )
