# SPDX-License-Identifier: Apache-2.0
"""The free GPUs of a node: its last reported state, updated with the pods since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import msgspec

from api.gpu_request import GpuRequest
from placement.masks import members, union
from placement.score_table import PlacementOutcome
from scheduler.pod_request import PodRequest


class LikelySets(Protocol):
    """Sets of GPUs that a pod will probably get, as a node class's score table has them."""

    def likely(self, free: int, wish: GpuRequest) -> int:
        """The set that a pod will most probably get; a guess where that is not known yet."""

    def known(self, free: int, wish: GpuRequest) -> PlacementOutcome | None:
        """All sets that a pod may get, with their odds; None where they are not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedState:
    """State that an agent last reported of its node, as masks of GPUs."""

    gen: str
    seq: int
    ok: int
    used: int
    pods: Mapping[str, int]
    """Key of each pod (:func:`api.state_annotation.pod_key`) to its GPUs."""

    def names(self, pod: Bound) -> bool:
        """Whether the state names the GPUs of all of the pod's containers, without ended ones.

        The kubelet serves one container after the other, and the agent may look in between.
        """
        named = self.pods.get(pod.key)
        return named is not None and named.bit_count() not in _parts(pod.ask.wish)[:-1]


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound to the node and has not ended."""

    key: str
    """:func:`api.state_annotation.pod_key` of it."""
    ask: PodRequest
    order: tuple[str, int]
    """Sorts pods as they were bound."""


class FreeGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The node now."""

    free: int
    sure: bool
    """The masks agree with the number of GPUs that the bound pods ask for."""
    expected: Mapping[str, PlacementOutcome]
    """UID of each pod of which the state does not name all GPUs yet to its prediction."""


def reckon(
    state: ReportedState, bound: Iterable[Bound], ended: Collection[str], table: LikelySets | None
) -> FreeGpus:
    """The free GPUs of the state, those of ended pods back and those of new pods taken out.

    ``ended``: keys of pods that have ended, whether the state still names them or not: the
    kubelet takes such a pod's GPUs back when it next allocates some. A new pod takes the set
    that it will most probably get, in the order of binding. Without a table it takes none,
    and the answer is not sure. Of a pod whose init containers had more GPUs than those that stay
    the state names the latter alone: which other ones it keeps is predicted too.
    Source: Kubernetes 1.37, pkg/kubelet/cm/devicemanager/manager.go (UpdateAllocatedDevices); for
    the idea the over-reserve cache of scheduler-plugins, pkg/noderesourcetopology/cache.
    """
    free = state.ok & (~state.used | _released(state, ended))
    sure = True
    expected: dict[str, PlacementOutcome] = {}
    for pod in sorted(bound, key=lambda pod: pod.order):
        wish = pod.ask.wish
        named = state.pods.get(pod.key)
        if named is None:
            taken = table.likely(free, wish) if table else 0
        else:
            taken = _held(free, named, wish, table)
        if not state.names(pod):
            before = free | (named or 0)
            outcome = table.known(before, wish) if table else None  # after it was worked out above
            if outcome is not None:
                expected[pod.ask.uid] = outcome
        free &= ~taken
        sure = sure and taken.bit_count() == wish.gpus
    return FreeGpus(free=free, sure=sure, expected=expected)


def _held(free: int, named: int, wish: GpuRequest, table: LikelySets | None) -> int:
    """All GPUs of a pod of which the state names some; it has more where its init containers had
    more, or where not all of its containers have been served.

    The kubelet keeps the former for the pod until it ends and hands them to nobody else. Which
    the others are is a guess by the prediction for the pod; their number is right.
    """
    missing = wish.gpus - named.bit_count()
    if table is None or missing <= 0 or named.bit_count() not in _parts(wish):
        return named
    outcome = table.known(free | named, wish)
    sets = outcome.sets if outcome else {}
    could_be = [group for group in sets if group & named == named]
    if not could_be:
        return named | union(members(free & ~named)[:missing])
    # ties go to the lowest mask, so that every replica of the extender expects the same set
    return max(could_be, key=lambda group: (sets[group], -group))


def _parts(wish: GpuRequest) -> list[int]:
    """Numbers of GPUs that a state may name of a pod: one after each container that stays."""
    return [*accumulate(step.gpus for step in wish.steps if not step.ends)]


def _released(state: ReportedState, ended: Collection[str]) -> int:
    """Mask of the GPUs that only ended pods have."""
    ended_gpus = other_gpus = 0
    for key, mask in state.pods.items():
        if key in ended:
            ended_gpus |= mask
        else:
            other_gpus |= mask
    return ended_gpus & ~other_gpus
