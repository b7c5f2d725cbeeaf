# SPDX-License-Identifier: Apache-2.0
"""Answer to the kubelet's question which free devices a container should get. Pure.

An answer has exactly as many ids as are requested, all required ones among them, and none that is
not available. A request that cannot be met so is answered too: the kubelet fails a pod for good
whose question meets an error (Kubernetes, pkg/kubelet/cm/devicemanager, devicesToAllocate).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placement.masks import members, union

LinkedSet = Callable[[int, int, int], int | None]
"""The best mask of GPUs for the masks of available ones, the number and the mask of required ones;
None where it is not known (in time)."""


class ChoiceKind(StrEnum):
    """How devices of a resource are chosen."""

    LINKED = "linked"
    """Whole GPUs, by the links between them."""
    PACKED = "packed"
    """MIG devices or shares of GPUs: GPUs of which least is available are used up first."""
    DISTRIBUTED = "distributed"
    """Shares of GPUs, as NVIDIA's plugin by default: from as many GPUs as there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFrom:
    """A device of a resource, as the choice sees it."""

    id: str
    gpu: int
    """Place of its GPU in the topology annotation, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A question of the kubelet; ids as it sends them, unsorted."""

    available: Sequence[str]
    size: int
    required: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """The ids to prefer, and why they are no choice; empty where they are one."""

    ids: tuple[str, ...]
    fallback: str = ""
    """Short word: ``unknown-ids``, ``repeated-ids``, ``required-not-available``, ``too-few``,
    ``too-many-required``, ``no-table``, ``nothing-requested``."""


class DeviceChoice:
    """Choice among the devices of one resource."""

    def __init__(
        self,
        devices: Iterable[ChosenFrom],
        kind: ChoiceKind,
        linked_set: LinkedSet = lambda _available, _size, _required: None,
    ) -> None:
        """``devices`` come in their order: by GPU, then by placement or number."""
        self._devices = tuple(devices)
        self._place = {device.id: place for place, device in enumerate(self._devices)}
        self._kind = kind
        self._linked_set = linked_set

    def answer(self, request: DeviceRequest) -> DeviceAnswer:
        """The devices that the container should get; a fallback for a request that makes no sense.

        The fallback is the required ids and then the lowest available ones, at most as many as are
        requested.
        """
        refusal = self.refusal(request)
        if refusal is not None:
            return refusal
        available = sorted(self._place[id_] for id_ in request.available)
        required = sorted(self._place[id_] for id_ in request.required)
        chosen = self._chosen(available, request.size, required)
        if chosen is None:
            return DeviceAnswer(ids=self._lowest(request), fallback="no-table")
        return DeviceAnswer(ids=tuple(self._devices[place].id for place in sorted(chosen)))

    def refusal(self, request: DeviceRequest) -> DeviceAnswer | None:
        """The fallback for a request that makes no sense; None for one that does.

        One that does has no more ids than the resource has devices.
        """
        fault = self._fault(request)
        return DeviceAnswer(ids=self._lowest(request), fallback=fault) if fault else None

    def _fault(self, request: DeviceRequest) -> str:
        available, required = set(request.available), set(request.required)
        faults = {
            "nothing-requested": request.size < 1,
            "repeated-ids": len(available) < len(request.available)
            or len(required) < len(request.required),
            "unknown-ids": not (available | required) <= self._place.keys(),
            "required-not-available": not required <= available,
            "too-many-required": len(required) > request.size,
            "too-few": len(available) < request.size,
        }
        return next((word for word, holds in faults.items() if holds), "")

    def _lowest(self, request: DeviceRequest) -> tuple[str, ...]:
        last = len(self._devices)

        def order(id_: str) -> tuple[int, str]:
            return self._place.get(id_, last), id_

        required = sorted(set(request.required), key=order)
        others = sorted(set(request.available) - set(required), key=order)
        return tuple([*required, *others][: max(0, request.size)])

    def _chosen(self, available: list[int], size: int, required: list[int]) -> set[int] | None:
        if self._kind is ChoiceKind.LINKED:
            return self._linked(available, size, required)
        free = defaultdict(list)
        for place in available:
            if place not in required:
                free[self._devices[place].gpu].append(place)
        counts = {gpu: len(places) for gpu, places in free.items()}
        number = size - len(required)
        if self._kind is ChoiceKind.PACKED:
            left = _packed(counts, number)
        else:
            had = Counter(self._devices[place].gpu for place in required)
            left = _distributed(counts, number, had)
        taken = (places[: counts[gpu] - left[gpu]] for gpu, places in free.items())
        return {*required, *itertools.chain.from_iterable(taken)}

    def _linked(self, available: list[int], size: int, required: list[int]) -> set[int] | None:
        place_by_gpu = {self._devices[place].gpu: place for place in available}
        masks = [
            union(tuple(self._devices[place].gpu for place in part))
            for part in (available, required)
        ]
        group = self._linked_set(masks[0], size, masks[1])
        return None if group is None else {place_by_gpu[gpu] for gpu in members(group)}


def _packed(counts: Mapping[int, int], number: int) -> Mapping[int, int]:
    """Devices left on each GPU once so many are taken: as many together as there can be.

    The largest numbers that are left are the largest possible. Of equals the lowest GPUs give.
    """
    ascending, rest = list[int](), number
    for count in sorted(counts.values()):
        ascending.append(max(0, count - rest))
        rest -= count - ascending[-1]
    left = dict[int, int]()
    gpus = sorted(counts)
    for place, gpu in enumerate(gpus):
        others = sorted(counts[other] for other in gpus[place + 1 :])
        for fewest in sorted(ascending):
            remaining = sorted(ascending)
            remaining.remove(fewest)
            fits = all(a <= b for a, b in zip(remaining, others, strict=True))
            if fewest <= counts[gpu] and fits:
                left[gpu], ascending = fewest, remaining
                break
    return left


def _distributed(
    counts: Mapping[int, int], number: int, had: Mapping[int, int]
) -> Mapping[int, int]:
    """Devices left on each GPU once so many are taken from as many GPUs as there can be.

    Of equals the GPU with most devices gives, then the lowest one.
    """
    left, taken = dict(counts), Counter(had)
    for _ in range(number):
        some = (gpu for gpu in left if left[gpu])
        gpu = min(some, key=lambda gpu: (taken[gpu], -left[gpu], gpu))
        left[gpu] -= 1
        taken[gpu] += 1
    return left
