# SPDX-License-Identifier: Apache-2.0
"""Our speed of sets orders them as the judge does, which makes NCCL's search and shares no code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations, permutations

import msgspec
import pytest

from api.topology_annotation import TopologyAnnotation, link_digits
from placement.score_table import ScoreTable
from placement.shape import shape
from tests.bench.placement_fleets import GENERATIONS, machine
from tests.judge.bandwidth import Judge
from tests.judge.links import links_of

LEAST_ON_DGX1, LEAST = 0.9, 0.98
"""Kendall's tau-b for each size of sets."""

Broken = dict[tuple[int, int], int]
"""Pairs of GPUs to the NVLinks that are left of theirs."""

MACHINES = ("dgx1-v100", "a100-pcie-pairs", "quads", "hgx-h100")
BROKEN: tuple[tuple[str, Broken], ...] = (
    ("dgx1-v100", {(0, 3): 0}),
    ("dgx1-v100", {(0, 4): 1}),
    ("dgx1-v100", {(0, 1): 0, (2, 6): 0}),
    ("dgx1-v100", {(6, 7): 0, (1, 2): 1}),
    ("a100-pcie-pairs", {(0, 1): 8}),
    ("a100-pcie-pairs", {(0, 1): 0}),
    ("quads", {(0, 1): 0}),
    ("quads", {(0, 1): 3, (2, 3): 3}),
)


def topology(name: str, broken: Broken) -> TopologyAnnotation:
    """A machine of which some NVLinks are broken."""
    whole = machine(name).topology
    pairs = combinations(range(whole.n), 2)
    counts = (broken.get(pair, whole.links(*pair)) for pair in pairs)
    return msgspec.structs.replace(whole, nv=link_digits(counts))


@cache
def speeds(name: str, broken: tuple[tuple[tuple[int, int], int], ...]) -> dict[int, list[Pair]]:
    """Of every set of several GPUs: ours, and the judge's; by size."""
    found = topology(name, dict(broken))
    ours, judge = ScoreTable(shape(found)), Judge(links_of(found), GENERATIONS[name])
    by_size: dict[int, list[Pair]] = {}
    for group in range(1 << found.n):
        if (size := group.bit_count()) > 1:
            by_size.setdefault(size, []).append((ours.gbps(group), judge.gbps(group)))
    return by_size


Pair = tuple[float, float]


def tau_b(pairs: Sequence[Pair]) -> float:
    """Kendall's tau-b: 1 for the same order with the same ties; 1 too where both tie all."""
    agree = only_ours = only_judge = 0
    for (a, b), (c, d) in combinations(pairs, 2):
        here, there = (a > c) - (a < c), (b > d) - (b < d)
        agree += here * there
        only_ours += bool(here)
        only_judge += bool(there)
    if not only_ours and not only_judge:
        return 1.0
    return agree / math.sqrt(only_ours * only_judge) if only_ours and only_judge else 0.0


@pytest.mark.parametrize("name", MACHINES)
def test_sets_of_a_machine_are_in_the_order_of_the_judge(name: str) -> None:
    least = LEAST_ON_DGX1 if name == "dgx1-v100" else LEAST
    found = {size: tau_b(pairs) for size, pairs in speeds(name, ()).items()}
    assert min(found.values()) >= least, found


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_where_links_are_broken_sets_are_in_the_order_of_the_judge(
    name: str, broken: Broken
) -> None:
    found = {size: tau_b(pairs) for size, pairs in speeds(name, tuple(broken.items())).items()}
    assert min(found.values()) >= LEAST, found


@pytest.mark.parametrize("size", [3, 4, 5])
def test_sets_of_a_dgx_1_with_equal_links_are_equal_for_us_and_for_the_judge(size: int) -> None:
    """However their GPUs are numbered: in four that are a triangle with a tail, all rings lead by
    way of a third GPU, and run in both directions."""
    links = links_of(topology("dgx1-v100", {})).nvlinks
    by_form: dict[tuple[int, ...], set[Pair]] = {}
    for gpus, pair in zip(sets_of(size), speeds("dgx1-v100", ())[size], strict=True):
        form = min(
            tuple(links[i][j] for i, j in combinations(order, 2)) for order in permutations(gpus)
        )
        by_form.setdefault(form, set()).add(pair)
    assert {form: pairs for form, pairs in by_form.items() if len(pairs) > 1} == {}


def sets_of(size: int) -> list[tuple[int, ...]]:
    """All sets of eight GPUs, in the order of :func:`speeds`."""
    sets = combinations(range(8), size)
    return sorted(sets, key=lambda gpus: sum(1 << gpu for gpu in gpus))


def broken_ties(name: str, broken: Broken) -> float:
    """Part of the pairs of sets over NVLink that the judge finds equal, and ours does not.

    Over PCIe ours goes by how near the GPUs are to each other, of which the judge has less.
    """
    equal = unequal = 0
    for pairs in speeds(name, tuple(broken.items())).values():
        fast = [pair for pair in pairs if pair[1] > GENERATIONS[name].pcie]
        for (a, b), (c, d) in combinations(fast, 2):
            equal += b == d
            unequal += b == d and a != c
    return unequal / equal


@pytest.mark.parametrize("name", MACHINES)
def test_sets_that_the_judge_finds_equal_are_equal_for_us(name: str) -> None:
    assert broken_ties(name, {}) == 0


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_where_links_are_broken_all_but_a_few_sets_are_equal_for_us_too(
    name: str, broken: Broken
) -> None:
    """NCCL finds one more ring by way of a GPU in two sets of a DGX-1 that have direct rings."""
    assert broken_ties(name, broken) <= 0.01


def test_tau_counts_a_tie_of_one_side_alone_against_both() -> None:
    assert tau_b([(1, 1), (2, 2), (3, 3)]) == 1.0
    assert tau_b([(1, 3), (2, 2), (3, 1)]) == -1.0
    assert tau_b([(1, 1), (1, 2), (2, 3)]) == pytest.approx(2 / math.sqrt(6))
    assert tau_b([(1, 1), (1, 1)]) == 1.0
    assert tau_b([(1, 1), (2, 1)]) == 0.0
