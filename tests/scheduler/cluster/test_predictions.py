# SPDX-License-Identifier: Apache-2.0
"""What a pod was given, against what was predicted."""

from __future__ import annotations

from fractions import Fraction

import pytest

from api import topology_annotation
from api.gpu_request import ContainerRequest, GpuRequest, Link, gpu_request
from placement.best_effort import Odds
from placement.class_tables import ScoreTables
from placement.score_table import ScoreTable
from scheduler.cluster.predictions import (
    PredictionCheck,
    is_ideal,
    is_unlinked,
    speed,
)
from scheduler.pod_request import PodRequest
from tests.scheduler.fleets import topology
from tests.scheduler.shapes import drawn, machine

PAIRED = 0b0011
SPLIT = 0b0101
ALL = 0b1111
PAIRS = ScoreTable(drawn(4, {(0, 1): 100, (2, 3): 50}))
"""Two bridged pairs, the second half as fast; all other links are PCIe."""


def landing(actual: int, wish: GpuRequest, predicted: Odds | None = None) -> PredictionCheck:
    """A pod that was given ``actual``."""
    return PredictionCheck(
        ask=PodRequest(namespace="default", name="p", uid="u", wish=wish),
        node="a",
        gen="0" * 10,
        predicted={} if predicted is None else predicted,
        actual=actual,
    )


def linked(*gpus: int) -> GpuRequest:
    """A wish for NVLink."""
    return gpu_request(*gpus, link=Link.NVLINK)


def test_the_chance_is_that_of_what_came() -> None:
    odds = {PAIRED: Fraction(3, 4), SPLIT: Fraction(1, 4)}

    assert landing(SPLIT, gpu_request(2), odds).chance == 0.25


def test_what_could_not_come_had_no_chance() -> None:
    assert landing(SPLIT, gpu_request(2), {PAIRED: Fraction(1)}).chance == 0


def test_without_a_prediction_there_was_neither_hit_nor_miss() -> None:
    assert landing(SPLIT, gpu_request(2)).chance is None


@pytest.mark.parametrize(
    ("actual", "wished", "gbps"),
    [
        (PAIRED, gpu_request(2), 100),
        (SPLIT, gpu_request(2), 10),
        (ALL, gpu_request(4), 10),
        (ALL, gpu_request(2, 2), 50),
        (0b0111, gpu_request(2, 1), 100),
        (
            0b0111,
            GpuRequest(steps=(ContainerRequest(gpus=2, ends=True), ContainerRequest(gpus=3))),
            10,
        ),
        (0b0001, gpu_request(1), None),
        (PAIRED, gpu_request(1, 1), None),
    ],
    ids=str,
)
def test_the_speed_is_that_of_the_slowest_container_at_the_best_split(
    actual: int, wished: GpuRequest, gbps: float | None
) -> None:
    assert speed(landing(actual, wished), PAIRS) == gbps


@pytest.mark.parametrize("actual", [0, 0b0001, 0b0111])
def test_another_number_of_gpus_than_asked_for_has_no_speed(actual: int) -> None:
    assert speed(landing(actual, gpu_request(2)), PAIRS) is None


def test_many_gpus_of_several_containers_are_not_split_for_ever() -> None:
    sixteen = ScoreTable(machine("hgx-16"))

    assert speed(landing(0xFFFF, gpu_request(8, 8)), sixteen) is None
    assert speed(landing(0xFF, gpu_request(8)), sixteen) is not None


@pytest.mark.parametrize(
    ("actual", "ideal"), [(PAIRED, True), (0b1100, False), (SPLIT, False), (0b0001, None)]
)
def test_a_set_is_ideal_where_none_of_the_class_is_faster(actual: int, ideal: bool | None) -> None:
    assert is_ideal(landing(actual, gpu_request(actual.bit_count())), PAIRS) is ideal


@pytest.mark.parametrize(
    ("actual", "wished", "unlinked"),
    [
        (PAIRED, linked(2), False),
        (SPLIT, linked(2), True),
        (ALL, linked(4), True),
        (ALL, linked(2, 2), False),
        (0b0001, linked(1), False),
        (0b0111, linked(2), False),
        (SPLIT, gpu_request(2), False),
        (SPLIT, gpu_request(2, link=Link.NUMA), False),
    ],
    ids=str,
)
def test_a_pod_is_unlinked_where_it_asked_for_nvlink_and_surely_has_none(
    actual: int, wished: GpuRequest, unlinked: bool
) -> None:
    assert is_unlinked(landing(actual, wished), PAIRS) is unlinked


@pytest.mark.parametrize(
    "name", ["dgx1-v100", "hgx-h100", "gb200", "a100-pcie-pairs", "a30-pair", "l40s", "mixed"]
)
def test_a_pair_is_linked_by_its_nvlinks(name: str) -> None:
    found = topology_annotation.decode(topology(name))
    assert found is not None
    table = ScoreTables()
    shape = table.find(table.add(found))
    assert shape is not None

    for i in range(found.n):
        for j in range(i):
            assert shape.is_linked(1 << i | 1 << j) == (found.links(i, j) > 0)
