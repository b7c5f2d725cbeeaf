"""Speeds, worth and scores on shapes that can be worked out by hand."""

from __future__ import annotations

import itertools

import pytest

from scheduler.masks import subsets
from scheduler.shape import Shape
from scheduler.speed import Speeds
from scheduler.table import Table
from scheduler.worth import Worth
from tests.scheduler.shapes import drawn, machine

PAIRS = drawn(8, {(at, at + 1): 300 for at in (0, 2, 4, 6)})
ALL = 0xFF


def worth(shape: Shape, free: int) -> float:
    return Worth(shape, Speeds(shape)).of(free)


def test_one_gpu_talks_to_nobody() -> None:
    assert Speeds(PAIRS).ring(0b1) == 0


def test_a_pair_is_as_fast_as_its_links() -> None:
    assert Speeds(PAIRS).ring(0b11) == 300


def test_a_ring_is_as_fast_as_its_slowest_link_and_need_not_use_all() -> None:
    """Around the square everything is fast; the diagonals are not needed."""
    square = drawn(4, {(0, 1): 100, (1, 2): 100, (2, 3): 100, (0, 3): 50})
    assert Speeds(square).ring(0b1111) == 50


def test_a_set_without_a_ring_over_its_fast_links_goes_over_slow_ones() -> None:
    star = drawn(4, {(0, 1): 100, (0, 2): 100, (0, 3): 100})
    assert Speeds(star).ring(0b1111) == 10


def test_a_broken_pair_is_worth_less_than_a_whole_one() -> None:
    assert worth(PAIRS, 0b0011) > worth(PAIRS, 0b0101)


def test_more_free_gpus_are_never_worth_less() -> None:
    shape = machine("dgx1-v100")
    value = Worth(shape, Speeds(shape))
    for free in range(ALL):
        assert all(value.of(free) <= value.of(free | 1 << place) for place in range(8))


def test_a_whole_pair_goes_before_two_halves() -> None:
    table = Table(PAIRS)
    assert table.outcome(0b0011, 2).score > table.outcome(0b0101, 2).score


def test_a_single_gpu_goes_where_a_pair_is_broken_already() -> None:
    table = Table(PAIRS)
    assert table.outcome(0b0111, 1).score < table.outcome(0b0001, 1).score


def test_of_equal_outcomes_the_fuller_node_is_taken() -> None:
    table = Table(PAIRS)
    assert table.outcome(0b0011, 2).score > table.outcome(0b1111, 2).score


def test_what_does_not_fit_scores_nothing() -> None:
    assert Table(PAIRS).outcome(0b0111, 4).score == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_another_order_of_the_gpus_keeps_the_scores(size: int) -> None:
    shape = machine("dgx1-v100")
    order = (3, 0, 7, 1, 6, 2, 5, 4)
    moved = Shape(
        n=8,
        points=tuple(tuple(shape.points[i][j] for j in order) for i in order),
        gbps=tuple(tuple(shape.gbps[i][j] for j in order) for i in order),
        numa=tuple(shape.numa[i] for i in order),
        nics=(),
    )
    here, there = Table(shape), Table(moved)
    for free in itertools.islice(subsets(ALL, max(size, 5)), 20):
        renamed = sum(1 << place for place, was in enumerate(order) if free >> was & 1)
        assert here.outcome(free, size).score == there.outcome(renamed, size).score


def test_where_the_worth_kept_is_equal_the_faster_set_is_not_ranked_lower() -> None:
    shape = machine("dgx1-v100")
    table, speeds, value = Table(shape), Speeds(shape), Worth(shape, Speeds(shape))
    seen = []
    for free in range(1, ALL + 1):
        outcome = table.outcome(free, 2)
        if outcome.sets:
            speed = sum(float(p) * speeds.ring(each) for each, p in outcome.sets.items())
            kept = sum(float(p) * value.of(free & ~each) for each, p in outcome.sets.items())
            seen.append((round(value.of(free) - kept, 6), free.bit_count(), speed, outcome.score))
    for (loss, count, slow, low), (others, many, fast, high) in itertools.product(seen, seen):
        if loss == others and count == many and slow <= fast:
            assert low <= high
