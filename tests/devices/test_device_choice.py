# SPDX-License-Identifier: Apache-2.0
"""Devices that a container should get: against a trial of all sets, and requests without sense."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random

import pytest

from devices.device_choice import ChoiceKind, ChosenFrom, DeviceAnswer, DeviceChoice, DeviceRequest

Device = tuple[int, int]
"""GPU, and number on it."""
GPUS = tuple(f"GPU-{place}" for place in range(4))


def ids(devices: frozenset[Device]) -> list[str]:
    return [f"{gpu}::{number}" for gpu, number in sorted(devices)]


def choice_of(devices: list[Device], kind: ChoiceKind) -> DeviceChoice:
    return DeviceChoice(
        [ChosenFrom(id=f"{gpu}::{number}", gpu=gpu) for gpu, number in devices], kind
    )


def counts(devices: frozenset[Device]) -> list[int]:
    """Devices of each GPU that has some, most first."""
    return sorted(Counter(gpu for gpu, _ in devices).values(), reverse=True)


def packed_rank(chosen: frozenset[Device], rest: frozenset[Device]) -> list[object]:
    """What is left lies on as few GPUs as it can; of equals the first devices."""
    return [[-count for count in counts(rest)], sorted(chosen)]


def distributed_rank(chosen: frozenset[Device], rest: frozenset[Device]) -> list[object]:
    """As few devices of one GPU as can be, then what is left as even; of equals the first."""
    return [counts(chosen), counts(rest), sorted(chosen)]


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize(
    ("kind", "rank"),
    [(ChoiceKind.PACKED, packed_rank), (ChoiceKind.DISTRIBUTED, distributed_rank)],
)
def test_no_other_set_is_better(kind: ChoiceKind, rank: object, seed: int) -> None:
    chance = Random(seed)  # noqa: S311  # it has to repeat
    devices = [(gpu, number) for gpu in range(3) for number in range(chance.randint(1, 4))]
    available = frozenset(device for device in devices if chance.random() < 0.8)
    required = frozenset(device for device in sorted(available) if chance.random() < 0.15)
    for size in range(max(1, len(required)), len(available) + 1):
        allowed = [
            required | frozenset(more)
            for more in combinations(sorted(available - required), size - len(required))
        ]
        best = min(allowed, key=lambda chosen: rank(chosen, available - chosen))  # type: ignore[operator]
        request = DeviceRequest(available=ids(available)[::-1], size=size, required=ids(required))
        assert choice_of(devices, kind).answer(request) == DeviceAnswer(ids=tuple(ids(best)))


def linked(table: dict[tuple[int, int, int], int]) -> DeviceChoice:
    devices = [ChosenFrom(id=id_, gpu=place) for place, id_ in enumerate(GPUS)]
    return DeviceChoice(
        devices, ChoiceKind.LINKED, lambda available, size, must: table.get((available, size, must))
    )


def test_whole_gpus_are_those_of_the_table() -> None:
    choice = linked({(0b1111, 2, 0b1000): 0b1001})
    request = DeviceRequest(available=GPUS[::-1], size=2, required=GPUS[3:])
    assert choice.answer(request) == DeviceAnswer(ids=("GPU-0", "GPU-3"))


def test_a_set_that_is_not_in_the_table_is_the_lowest_one() -> None:
    request = DeviceRequest(available=GPUS[::-1], size=2, required=GPUS[3:])
    assert linked({}).answer(request) == DeviceAnswer(ids=("GPU-3", "GPU-0"), fallback="no-table")


@pytest.mark.parametrize(
    ("available", "size", "required", "answer", "why"),
    [
        (("GPU-2", "GPU-x", "GPU-1"), 2, (), ("GPU-1", "GPU-2"), "unknown-ids"),
        (("GPU-x",), 1, (), ("GPU-x",), "unknown-ids"),
        (("GPU-2", "GPU-2", "GPU-1"), 2, (), ("GPU-1", "GPU-2"), "repeated-ids"),
        (GPUS, 2, ("GPU-3", "GPU-3"), ("GPU-3", "GPU-0"), "repeated-ids"),
        (("GPU-1",), 2, ("GPU-3",), ("GPU-3", "GPU-1"), "required-not-available"),
        (GPUS, 1, ("GPU-3", "GPU-1"), ("GPU-1",), "too-many-required"),
        (("GPU-1",), 3, (), ("GPU-1",), "too-few"),
        ((), 1, (), (), "too-few"),
        (GPUS, 0, (), (), "nothing-requested"),
        (GPUS, -1, (), (), "nothing-requested"),
        (GPUS, -5, ("GPU-3",), (), "nothing-requested"),
    ],
)
def test_a_request_without_sense_is_answered_with_what_is_lowest(
    available: tuple[str, ...], size: int, required: tuple[str, ...], answer: object, why: str
) -> None:
    for kind in ChoiceKind:
        devices = [ChosenFrom(id=id_, gpu=place) for place, id_ in enumerate(GPUS)]
        request = DeviceRequest(available=available, size=size, required=required)
        assert DeviceChoice(devices, kind).answer(request) == DeviceAnswer(ids=answer, fallback=why)  # type: ignore[arg-type]


def test_ten_thousand_ids_are_answered() -> None:
    many = tuple(f"GPU-{place:05}" for place in range(10_000))
    answer = linked({}).answer(DeviceRequest(available=many, size=9_999))
    assert (len(answer.ids), answer.ids[0], answer.fallback) == (9_999, "GPU-00000", "unknown-ids")
