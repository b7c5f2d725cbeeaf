# SPDX-License-Identifier: Apache-2.0
"""The prediction of the device plugin's choice: by hand, and beside the plugin's own policy."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import pytest

from labelers.annotations import topology_of
from placement.best_effort import LOST, BestEffort, Odds
from placement.device_order import first_named, named_from
from placement.masks import members, union
from placement.shape import Shape, shape
from tests.kubelet_nodes.allocator import AllocationError, Allocator
from tests.kubelet_nodes.links import LinkTypes, link_types
from tests.observed import observed
from tests.scheduler.shapes import drawn

MACHINES = ("dgx1-v100", "a100-pcie-pairs", "dgx-a100", "hgx-h100", "a30-pair", "mixed", "l40s")
ORDERS = 60
"""In so many random orders the policy is asked the same; the odds are that exact at best."""


def odds(shape: Shape, free: int, size: int, required: int = 0) -> Odds:
    return BestEffort(shape).odds(free, size, required)


def test_a_single_gpu_is_the_one_that_is_named_first() -> None:
    first = first_named(0b101, 3)
    assert odds(drawn(3, {}), 0b101, 1) == {0b001: first[0], 0b100: first[2]}


def test_a_single_gpu_of_more_than_a_small_map_holds_is_any_free_one() -> None:
    assert odds(drawn(9, {}), 0b101, 1) == {0b001: Fraction(1, 2), 0b100: Fraction(1, 2)}


def test_too_few_free_gpus_are_no_allocation() -> None:
    assert odds(drawn(2, {}), 0b01, 2) == {}


def test_of_two_linked_pairs_either_comes() -> None:
    pairs, first = drawn(4, {(0, 1): 400, (2, 3): 400}), first_named(0b1111, 4)
    shares = {0b0011: first[0] + first[1], 0b1100: first[2] + first[3]}
    assert odds(pairs, 0b1111, 2) == shares


def test_the_best_pair_is_passed_over_where_the_rest_would_be_worse_together() -> None:
    """0-1 is the best pair, but 0-2 with 1-3 are more together."""
    square = drawn(4, {(0, 1): 100, (0, 2): 90, (1, 3): 90})
    assert set(odds(square, 0b1111, 2)) == {0b0101, 0b1010}


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


def test_of_equal_cuts_the_first_one_comes_and_of_it_the_first_group() -> None:
    """Two cuts have 120 points: 60 and 60, and 100 and 20."""
    links = {(0, 1): 60, (2, 3): 60, (0, 2): 100, (1, 3): 20, (0, 3): 1, (1, 2): 1}
    first = first_named(0b1111, 4)
    shares = {0b0011: first[0], 0b1100: first[2], 0b0101: first[1] + first[3]}
    assert odds(drawn(4, links), 0b1111, 2) == shares


def test_of_more_gpus_each_best_cut_counts_once_however_many_of_its_groups_are_equal() -> None:
    """The same cuts, where any order may come: of the first one either group may be the first."""
    links = {(0, 1): 60, (2, 3): 60, (0, 2): 100, (1, 3): 20, (0, 3): 1, (1, 2): 1}
    shares = {0b0011: Fraction(1, 4), 0b1100: Fraction(1, 4), 0b0101: Fraction(1, 2)}
    assert odds(drawn(9, links), 0b1111, 2) == shares


def test_a_smaller_group_is_tried_after_all_whole_ones_of_the_same_gpu() -> None:
    """0-1 are best together, with any third one or left over: then the pod is lost."""
    first = first_named(0b11111, 5)
    shares = {0b00111: first[0] + first[1], LOST: first[2] + first[3], 0b10011: first[4]}
    assert odds(drawn(5, {(0, 1): 50}), 0b11111, 3) == shares


def test_of_more_gpus_a_smaller_group_that_is_as_good_loses_every_second_pod() -> None:
    """Four cuts have 60 points. In one of them both groups have 30, and either may come."""
    thirds = {0b11001: Fraction(1, 4), 0b11010: Fraction(1, 4), 0b11100: Fraction(1, 4)}
    equal = {0b00111: Fraction(1, 8), LOST: Fraction(1, 8)}
    assert odds(drawn(9, {(3, 4): 30}), 0b11111, 3) == thirds | equal


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

    def choice(self, order: Iterable[int], size: int, required: int = 0) -> int:
        """What it chose where the free GPUs are named so."""
        try:
            named = self.allocator.prefer(
                self.rows,
                self.links,
                available=[self.rows[place] for place in order],
                required=[self.rows[place] for place in members(required)],
                size=size,
            )
        except AllocationError:
            return LOST
        return union(tuple(map(self.rows.index, named)))


def judge_of(machine: str, allocator: Allocator) -> tuple[Judge, Shape]:
    """With what the prediction knows of the same machine."""
    snapshot = observed(machine).snapshot
    rows = [gpu.uuid or "" for gpu in snapshot.gpus]
    judge = Judge(allocator=allocator, rows=rows, links=link_types(snapshot))
    return judge, shape(topology_of(snapshot))


@pytest.mark.cluster
@pytest.mark.parametrize("machine", MACHINES)
def test_in_each_order_of_the_kubelet_the_policy_chooses_what_is_predicted(
    allocator: Allocator, machine: str
) -> None:
    judge, known = judge_of(machine, allocator)
    chance = random.Random(machine)  # noqa: S311 (has to repeat)
    for _ in range(40):
        free = chance.randrange(1, 1 << known.n) | chance.randrange(1 << known.n)
        size = chance.randint(1, free.bit_count())
        chosen: dict[int, Fraction] = defaultdict(Fraction)
        for first, share in first_named(free, known.n).items():
            chosen[judge.choice(named_from(free, first), size)] += share
        assert odds(known, free, size) == chosen, (bin(free), size)


@pytest.mark.cluster
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kept", [1, 2])
def test_the_policy_chooses_what_is_predicted_about_as_often(
    allocator: Allocator, machine: str, kept: int
) -> None:
    """Where GPUs are required, since containers before had them."""
    judge, known = judge_of(machine, allocator)
    chance = random.Random(machine)  # noqa: S311 (has to repeat)
    for _ in range(12):
        free = chance.randrange(1, 1 << known.n) | chance.randrange(1 << known.n)
        size = chance.randint(1, free.bit_count())
        required = union(tuple(chance.sample(members(free), min(kept, size - 1))))
        if not required:
            continue
        predicted = odds(known, free, size, required)
        places = members(free)
        chosen = Counter(
            judge.choice(chance.sample(places, len(places)), size, required) for _ in range(ORDERS)
        )
        assert chosen.keys() <= predicted.keys(), (bin(free), size, bin(required))
        for each, share in predicted.items():
            assert abs(chosen[each] / ORDERS - share) < 0.3, (bin(free), size, bin(each))
