# SPDX-License-Identifier: Apache-2.0
"""GPUs that a pod's containers get on a node: the kubelet's part, around the device plugin's.

The kubelet serves containers in their order. One that comes after init containers takes theirs
first, and the pod keeps what is left over of those. The TopologyManager, if its policy is not
``none``, finds the fewest NUMA nodes that can serve a container, or all of the pod together, and
refuses the pod if its policy is not content with them; GPUs there come first, and where they are
more than needed the device plugin chooses among them alone. Only GPUs request NUMA nodes here:
what CPUs, memory and NICs request is not known.
Source: Kubernetes 1.37, pkg/kubelet/cm: devicemanager/{manager,topology_hints}.go,
topologymanager/{policy,policy_single_numa_node,scope_container,scope_pod}.go; what is reported:
pkg/kubelet/apis/podresources/server_v1.go.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from api.gpu_request import ContainerRequest, GpuRequest
from placement.best_effort import LOST, BestEffort, Odds
from placement.grade import BEST, Grade, grade, worse
from placement.masks import subsets, union
from placement.shape import Shape
from placement.speed import SetSpeeds
from placement.workspace import Workspace

_MOST_NUMA_NODES = 8


class TopologyManager(StrEnum):
    """The kubelet's policies, by the names in its configuration."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(StrEnum):
    """Whose NUMA nodes the TopologyManager finds, by the names in the kubelet's configuration."""

    CONTAINER = "container"
    POD = "pod"


class DevicePluginPolicy(StrEnum):
    """The device plugin's preference among free GPUs."""

    BEST_EFFORT = "best-effort"
    """NVIDIA's plugin for whole GPUs."""
    RANDOM = "random"
    """Nothing, or what says nothing of whole GPUs: any set is as likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Policies of kubelet and device plugin, which choose the GPUs on a node."""

    tm: TopologyManager = TopologyManager.NONE
    scope: Scope = Scope.CONTAINER
    al: DevicePluginPolicy = DevicePluginPolicy.BEST_EFFORT


class AssignedSet(NamedTuple):
    """A set of GPUs that a pod, or its first containers, may get, with its grade."""

    taken: int = LOST
    """All GPUs of its containers; LOST where it is refused."""
    ended: int = 0
    """Part of ``taken`` that only ended containers had: the next containers get these GPUs first,
    the pod keeps the rest, and the kubelet does not report them."""
    grade: Grade = BEST
    """The worst of its containers, by each quality."""


class _Numas(NamedTuple):
    """A choice of NUMA nodes that may serve a container."""

    nodes: int
    """Number of NUMA nodes."""
    gpus: int
    """Mask of the GPUs on them."""


class KubeletModel:
    """A model of the kubelet on nodes of one shape; keeps what it computed in the workspace."""

    def __init__(
        self,
        shape: Shape,
        policies: Policies,
        speeds: SetSpeeds,
        workspace: Workspace | None = None,
    ) -> None:
        workspace = workspace or Workspace()
        self._policies = policies
        self._workspace = workspace
        self._plugin = BestEffort(shape, workspace)
        self._numas = _numas(shape)
        self._grade = workspace.cache(partial(grade, shape, speeds), 300)
        self._near = workspace.cache(self._nears)
        self._give = workspace.cache(self._gives, _odds_bytes)

    def serve(self, free: int, wish: GpuRequest) -> Mapping[AssignedSet, Fraction]:
        """Outcomes of a request with odds that add up to 1. Empty where GPUs are too few."""
        if wish.gpus > free.bit_count():
            return {}
        by_pod = self._policies.scope is Scope.POD
        whole = self._near(free, 0, wish.gpus) if by_pod else None
        assigned = {AssignedSet(): Fraction(1)}
        lost = Fraction()
        for step, counts in zip(wish.steps, wish.judged, strict=True):
            after: dict[AssignedSet, Fraction] = defaultdict(Fraction)
            for before, odds in assigned.items():
                rest = free & ~before.taken
                near = whole if by_pod else self._near(rest, before.ended, step.gpus)
                shares = self._give(rest, before.ended, step.gpus, near)
                self._workspace.spend(len(shares))
                for group, share in shares.items():
                    if group == LOST:
                        lost += odds * share
                    else:
                        after[self._then(before, step, group, counts)] += odds * share
            assigned = after
        return assigned | {AssignedSet(): lost} if lost else assigned

    def _then(
        self, before: AssignedSet, step: ContainerRequest, group: int, counts: bool
    ) -> AssignedSet:
        """What the pod has after its next container got these GPUs."""
        return AssignedSet(
            taken=before.taken | group,
            ended=before.ended | group if step.ends else before.ended & ~group,
            grade=worse(before.grade, self._grade(group)) if counts else before.grade,
        )

    def _gives(self, free: int, reusable: int, size: int, near: int | None) -> Odds:
        """Sets that a container may get, with their odds; there are enough free GPUs.

        ``near``: result of :meth:`_nears`.
        """
        if near is None:
            return {LOST: Fraction(1)}
        needed = size - reusable.bit_count()
        if needed <= 0:
            return _any(reusable, size)
        aligned = free & near
        if needed < aligned.bit_count():
            return self._preferred(aligned | reusable, reusable, size)
        required = reusable | aligned
        if required.bit_count() == size:
            return {required: Fraction(1)}
        return self._preferred(free | reusable, required, size)

    def _preferred(self, available: int, required: int, size: int) -> Odds:
        """Sets that the device plugin prefers, with their odds; any set if it prefers none."""
        if self._policies.al is DevicePluginPolicy.BEST_EFFORT:
            return self._plugin.odds(available, size, required)
        return _any(available, size, required)

    def _nears(self, free: int, reusable: int, size: int) -> int | None:
        """GPUs on the NUMA nodes of the best hint; 0 without hints, None for a refusal."""
        tm = self._policies.tm
        if tm is TopologyManager.NONE or not self._numas:
            return 0
        fewest = next(
            (choice.nodes for choice in self._numas if choice.gpus.bit_count() >= size), None
        )
        hint = next(
            (choice for choice in self._numas if _serves(choice, free, reusable, size)), None
        )
        if tm is TopologyManager.BEST_EFFORT:
            return (hint or self._numas[-1]).gpus
        if hint is None or hint.nodes != fewest:
            return None
        if tm is TopologyManager.SINGLE_NUMA_NODE and hint.nodes > 1:
            return None
        return hint.gpus


def _serves(numas: _Numas, free: int, reusable: int, size: int) -> bool:
    """Whether these NUMA nodes have ``size`` free or reusable GPUs, and all the reusable ones."""
    return not reusable & ~numas.gpus and ((reusable | free) & numas.gpus).bit_count() >= size


def _numas(shape: Shape) -> tuple[_Numas, ...]:
    """All choices among the NUMA nodes of the shape's GPUs, in the order of their hints.

    None where there are more than the kubelet takes: it does not start then with any policy.
    """
    gpus = {
        node: union(place for place, numa_node in enumerate(shape.numa) if numa_node == node)
        for node in set(shape.numa)
        if node >= 0
    }
    if len(gpus) > _MOST_NUMA_NODES:
        return ()
    choices = (
        chosen for count in range(len(gpus)) for chosen in itertools.combinations(gpus, count + 1)
    )
    ordered = sorted(choices, key=lambda nodes: (len(nodes), sum(1 << node for node in nodes)))
    return tuple(
        _Numas(nodes=len(nodes), gpus=sum(gpus[node] for node in nodes)) for nodes in ordered
    )


def _odds_bytes(odds: Odds) -> int:
    """About what a distribution takes: most of its odds are one object."""
    return 400 + 120 * len(odds)


def _any(available: int, size: int, required: int = 0) -> Odds:
    """Equal odds for all sets of a size: the kubelet's own sets have no order."""
    rest = [*subsets(available & ~required, size - required.bit_count())]
    return dict.fromkeys((required | group for group in rest), Fraction(1, len(rest)))
