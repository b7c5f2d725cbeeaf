# SPDX-License-Identifier: Apache-2.0
"""The prediction of the device plugin's choice: by hand, and beside the plugin's own policy."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import pytest

from labelers.annotations import topology_of
from scheduler.scores.best_effort import LOST, BestEffort, Odds
from scheduler.scores.masks import members, union
from scheduler.scores.shape import Shape, shape
from tests.kubelet.allocator import AllocationError, Allocator
from tests.kubelet.links import LinkTypes, link_types
from tests.observed import observed
from tests.scheduler.shapes import drawn

MACHINES = ("dgx1-v100", "a100-pcie-pairs", "dgx-a100", "hgx-h100", "a30-pair", "mixed", "l40s")
ORDERS = 60
"""In so many random orders the policy is asked the same; the odds are that exact at best."""


def odds(shape: Shape, free: int, size: int, required: int = 0) -> Odds:
    return BestEffort(shape).odds(free, size, required)


def test_a_single_gpu_is_any_free_one() -> None:
    assert odds(drawn(3, {}), 0b101, 1) == {0b001: Fraction(1, 2), 0b100: Fraction(1, 2)}


def test_too_few_free_gpus_are_no_allocation() -> None:
    assert odds(drawn(2, {}), 0b01, 2) == {}


def test_of_two_linked_pairs_either_comes() -> None:
    pairs = drawn(4, {(0, 1): 400, (2, 3): 400})
    assert odds(pairs, 0b1111, 2) == {0b0011: Fraction(1, 2), 0b1100: Fraction(1, 2)}


def test_the_best_pair_is_passed_over_where_the_rest_would_be_worse_together() -> None:
    """0-1 is the best pair, but 0-2 with 1-3 are more together."""
    square = drawn(4, {(0, 1): 100, (0, 2): 90, (1, 3): 90})
    assert odds(square, 0b1111, 2) == {0b0101: Fraction(1, 2), 0b1010: Fraction(1, 2)}


def test_a_smaller_group_that_is_better_than_the_whole_ones_loses_the_pod() -> None:
    """Of five GPUs three are asked for; the two that are left over have the most links."""
    links = {(0, 1): 100, (0, 2): 100, (1, 2): 100, (3, 4): 1800}
    assert odds(drawn(5, links), 0b11111, 3) == {LOST: Fraction(1)}


def test_what_is_required_comes_with_the_set_that_leaves_the_best_rest() -> None:
    """0-1 is the best pair of the two that have GPU 0, but 0-2 leaves 1-3, which is better yet."""
    links = drawn(4, {(0, 1): 100, (0, 2): 90, (1, 3): 900})
    assert odds(links, 0b1111, 2, required=0b0001) == {0b0101: Fraction(1)}


def test_no_smaller_group_is_handed_out_where_a_gpu_is_required() -> None:
    links = {(0, 1): 100, (0, 2): 100, (1, 2): 100, (3, 4): 1800}
    assert odds(drawn(5, links), 0b11111, 3, required=0b00001) == {0b00111: Fraction(1)}


def test_each_best_cut_counts_once_however_many_of_its_groups_are_equal() -> None:
    """Two cuts have 120 points: 60 and 60, of which either group comes, and 100 and 20."""
    links = {(0, 1): 60, (2, 3): 60, (0, 2): 100, (1, 3): 20, (0, 3): 1, (1, 2): 1}
    shares = {0b0011: Fraction(1, 4), 0b1100: Fraction(1, 4), 0b0101: Fraction(1, 2)}
    assert odds(drawn(4, links), 0b1111, 2) == shares


def test_a_smaller_group_that_is_as_good_as_the_whole_one_loses_every_second_pod() -> None:
    """Four cuts have 60 points. In one of them both groups have 30, and either may come."""
    thirds = {0b11001: Fraction(1, 4), 0b11010: Fraction(1, 4), 0b11100: Fraction(1, 4)}
    equal = {0b00111: Fraction(1, 8), LOST: Fraction(1, 8)}
    assert odds(drawn(5, {(3, 4): 30}), 0b11111, 3) == thirds | equal


def test_a_required_gpu_comes_more_often_with_what_leaves_more_best_cuts() -> None:
    """0-1 leaves four equal GPUs, in pairs three ways; 0-2 leaves one best way."""
    links = {(0, 1): 10, (0, 2): 5, (0, 3): 5, (0, 4): 1, (0, 5): 1, (1, 3): 15}
    shares = {0b000011: Fraction(3, 4), 0b000101: Fraction(1, 4)}
    assert odds(drawn(6, links), 0b111111, 2, required=0b000001) == shares


def test_odds_add_up_to_one_and_sets_are_free_and_of_the_size() -> None:
    found = odds(drawn(6, {(0, 1): 100, (2, 3): 100}), 0b110111, 2)
    assert sum(found.values()) == 1
    assert all(each & ~0b110111 == 0 and each.bit_count() == 2 for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The policy itself on one machine."""

    allocator: Allocator
    rows: list[str]
    links: LinkTypes

    def choices(
        self, free: int, size: int, chance: random.Random, required: int = 0
    ) -> Counter[int]:
        """What it chose in random orders, by how often."""
        chosen: Counter[int] = Counter()
        available = [self.rows[place] for place in members(free)]
        kept = [self.rows[place] for place in members(required)]
        for _ in range(ORDERS):
            chance.shuffle(available)
            try:
                named = self.allocator.prefer(
                    self.rows, self.links, available=available, required=kept, size=size
                )
                chosen[union(tuple(map(self.rows.index, named)))] += 1
            except AllocationError:
                chosen[LOST] += 1
        return chosen


@pytest.mark.cluster
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_policy_chooses_what_is_predicted_about_as_often(
    allocator: Allocator, machine: str, kept: int
) -> None:
    """Also where GPUs are required, since containers before had them."""
    snapshot = observed(machine).snapshot
    judge = Judge(
        allocator=allocator,
        rows=[gpu.uuid or "" for gpu in snapshot.gpus],
        links=link_types(snapshot),
    )
    known, chance = shape(topology_of(snapshot)), random.Random(machine)  # noqa: S311 (has to repeat)
    for _ in range(12):
        free = chance.randrange(1, 1 << known.n) | chance.randrange(1 << known.n)
        size = chance.randint(1, free.bit_count())
        required = union(tuple(chance.sample(members(free), min(kept, size - 1))))
        predicted = odds(known, free, size, required)
        chosen = judge.choices(free, size, chance, required)
        assert chosen.keys() <= predicted.keys(), (bin(free), size, bin(required))
        for each, share in predicted.items():
            assert abs(chosen[each] / ORDERS - share) < 0.3, (bin(free), size, bin(each))
