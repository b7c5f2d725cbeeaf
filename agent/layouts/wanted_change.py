# SPDX-License-Identifier: Apache-2.0
"""The change of MIG layouts that is wanted now, as coordinator and actuator are asked for it. Pure.

Import it where changes are made: it comes with the actuator's messages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from agent.layouts.layout_request import LayoutRequest
from agent.layouts.layout_verdict import LayoutVerdict
from api import mig_request_annotation
from api.actuator_messages import (
    ApplyRequest,
    InstanceAsked,
    KnownChange,
    LayoutAsked,
    PodOnGpu,
    PodsOnGpus,
)
from api.mig_request_annotation import (
    MOST_CHARACTERS,
    MOST_PODS,
    MOST_PROGRAM,
    MOST_PROGRAMS,
    VERSION,
    MigRequestAnnotation,
)
from api.mig_resources import MOST_OFFERS, MigStrategy
from api.state_annotation import pod_key
from base.text.safe_text import short_line
from mig.gpu_layout import GpuLayout
from mig.holders import HolderKind, MigHolders
from mig.steps import SetMode

_MOST_ASKED: Final = 256
_MOST_ON_GPUS: Final = 2048
_NAME: Final = re.compile(r"[0-9a-z./-]{1,320}")
"""That the actuator takes; others it reads in the kubelet's checkpoint itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChange:
    """Layouts that the GPUs do not have, and whom the way there concerns."""

    plan: str
    """Digest of the layouts."""
    asked: str
    """Where they come from, for people."""
    layouts: Mapping[str, LayoutAsked]
    """By GPU UUID."""
    gpus: tuple[int, ...]
    """Indices of those that change."""
    modes: bool
    """MIG is turned on or off on one of them."""
    pods: frozenset[str]
    """``namespace/name`` of those that hold what would go."""
    others: frozenset[str]
    """All others that have a GPU or a MIG device."""
    programs: tuple[str, ...]
    """Those that hold what would go and are no pod's."""
    on_gpus: PodsOnGpus
    """All of them, by what they hold."""
    offers: Mapping[str, int]
    """What the node offers afterwards; empty where that is not known."""
    strategy: MigStrategy | None

    def apply_request(self, request: str) -> ApplyRequest:
        """As the actuator is asked for it."""
        return ApplyRequest(
            change=request,
            asked=self.asked,
            wanted=dict(self.layouts),
            strategy=self.strategy,
            pods=self.on_gpus,
        )

    def annotation(
        self, request: str, *, drift: bool = False, since: str = ""
    ) -> MigRequestAnnotation:
        """As the coordinator is asked for leave; pods for which there is no room are counted.

        ``drift``: the GPUs have lost the layouts, and nobody asks for others; ``since``: when it
        was first asked for.
        """
        named = MigRequestAnnotation(
            v=VERSION,
            request=request,
            plan=self.plan,
            since=since,
            gpus=self.gpus,
            modes=self.modes,
            drift=drift,
            pods=_keys(self.pods),
            others=_keys(self.others),
            programs=tuple(short_line(one, MOST_PROGRAM) for one in self.programs[:MOST_PROGRAMS]),
            offers=dict(self.offers) if len(self.offers) <= MOST_OFFERS else {},
        )
        room = MOST_PODS
        while len(mig_request_annotation.encode(found := _cut(named, room))) > MOST_CHARACTERS:
            room -= 1
        return found


def is_in_the_way(other: KnownChange, change: WantedChange | None) -> bool:
    """Whether a change in the journal keeps the actuator from this one; True where that is unknown.

    A change that is held keeps its own GPUs from the actuator, and no others.
    """
    if other.end is None or change is None or not other.gpus:
        return True
    return not change.layouts.keys().isdisjoint(other.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is wished, by the GPUs as they were read."""

    key: object
    """Equal where the same is asked for."""
    change: WantedChange | None
    """None: there is nothing to change, or no way to do it."""
    unchanged: bool
    """The GPUs have what is asked for."""
    changes: int
    """How often the GPUs had been changed, as far as is known, when they were read."""
    plan: str = ""
    """Digest of the layouts that are asked for; empty where it is not known."""


def wanted_change(
    request: LayoutRequest,
    judged: LayoutVerdict,
    holders: MigHolders,
    strategy: MigStrategy | None,
) -> WantedChange | None:
    """The change that a verdict asks for; None where it asks for none."""
    found = judged.found
    if found is None or not found.steps:
        return None
    pods = frozenset(one.name for one in found.disturbed if one.kind is HolderKind.POD)
    programs = sorted(one.name for one in found.disturbed if one.kind is HolderKind.PROCESS)
    return WantedChange(
        plan=judged.status.plan,
        asked=_words(f"{request.source} {request.text}"),
        layouts=_asked_layouts(judged.layouts),
        gpus=tuple(one.gpu for one in judged.status.gpus),
        modes=any(isinstance(step, SetMode) for step in found.steps),
        pods=pods,
        others=_pod_names(holders) - pods,
        programs=tuple(programs),
        on_gpus=_pods_on_gpus(holders),
        offers={} if found.allocatable is None else found.allocatable,
        strategy=strategy,
    )


def _asked_layouts(layouts: Mapping[str, GpuLayout]) -> dict[str, LayoutAsked]:
    """Layouts as the actuator takes them."""
    return {
        uuid: LayoutAsked(
            mig=one.mig,
            instances=tuple(
                InstanceAsked(
                    profile=each.profile,
                    compute=each.compute,
                    start=each.start if each.start >= 0 else None,
                )
                for each in one.instances
            ),
        )
        for uuid, one in layouts.items()
    }


def _words(text: str) -> str:
    """A request on one line, cut to what the actuator takes."""
    return short_line(text, _MOST_ASKED)


def _pods_on_gpus(holders: MigHolders) -> PodsOnGpus:
    """Pods by what they hold, in order."""
    found = (
        PodOnGpu(gpu=part.gpu, instance=part.instance, kind="pod", name=one.name)
        for part, held in sorted(holders.items(), key=lambda it: (it[0].gpu, it[0].instance or -1))
        for one in sorted(held)
        if one.kind is HolderKind.POD and _NAME.fullmatch(one.name)
    )
    return tuple(found)[:_MOST_ON_GPUS]


def _pod_names(holders: MigHolders) -> frozenset[str]:
    """Of all pods that hold something."""
    return frozenset(
        one.name for held in holders.values() for one in held if one.kind is HolderKind.POD
    )


def _cut(request: MigRequestAnnotation, room: int) -> MigRequestAnnotation:
    pods = request.pods[:room]
    others = request.others[: room - len(pods)]
    left = len(request.pods) + len(request.others) - len(pods) - len(others)
    return replace(request, pods=pods, others=others, unlisted=left)


def _keys(pods: Collection[str]) -> tuple[str, ...]:
    return tuple(_key(pod) for pod in sorted(pods))


def _key(pod: str) -> str:
    namespace, _, name = pod.partition("/")
    return pod_key(namespace, name)
