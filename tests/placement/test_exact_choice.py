# SPDX-License-Identifier: Apache-2.0
"""The best set of free GPUs: against a judge that tries everything, and by hand."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from placement.exact_choice import ExactChoice
from placement.masks import members
from placement.shape import Shape
from placement.workspace import TooMuchWork, Workspace
from tests.placement.choice_judge import ChoiceJudge
from tests.scheduler.shapes import machine

PCIE = (24, 18, 10)


def drawn_links(seed: int, n: int) -> tuple[list[list[int]], list[list[int]]]:
    """NVLinks and GB/s over PCIe of each pair of a made-up machine."""
    chance = Random(seed)  # noqa: S311  # it has to repeat
    links, pcie = ([[0] * n for _ in range(n)] for _ in range(2))
    most = chance.choice((0, 1, 1, 2))
    for i, j in combinations(range(n), 2):
        links[i][j] = links[j][i] = chance.randint(0, most)
        pcie[i][j] = pcie[j][i] = chance.choice(PCIE)
    return links, pcie


def shape_of(links: list[list[int]], pcie: list[list[int]]) -> Shape:
    n = len(links)
    gbps = tuple(tuple(25 * links[i][j] or pcie[i][j] for j in range(n)) for i in range(n))
    return Shape(
        n=n, points=gbps, gbps=gbps, nvlinks=tuple(map(tuple, links)), numa=(0,) * n, nics=()
    )


@pytest.mark.parametrize("seed", range(10))
def test_the_set_is_the_one_that_a_trial_of_all_sets_finds(seed: int) -> None:
    """Every set of available GPUs, every part of it as required, every size."""
    links, pcie = drawn_links(seed, 4 + seed % 2)
    choice, judge, n = ExactChoice(shape_of(links, pcie)), ChoiceJudge(links, pcie), len(links)
    for available in range(1, 1 << n):
        for required in (r for r in range(available + 1) if not r & ~available):
            for size in range(max(1, required.bit_count()), min(4, available.bit_count()) + 1):
                group = choice.best(available, size, required)
                expected = judge.best(
                    frozenset(members(available)), size, frozenset(members(required))
                )
                assert set(members(group)) == expected, (f"{available:b}", f"{required:b}", size)


def test_a_bridged_pair_comes_before_two_gpus_of_two_pairs() -> None:
    assert ExactChoice(machine("a100-pcie-pairs")).best(0b011110, 2) == 0b001100


def test_a_single_gpu_breaks_no_pair_up() -> None:
    assert ExactChoice(machine("a100-pcie-pairs")).best(0b111110, 1) == 0b000010


def test_four_of_a_free_dgx_1_are_a_quad() -> None:
    """Both quads are as fast; the other one stays whole."""
    assert ExactChoice(machine("dgx1-v100")).best(0xFF, 4) == 0b1111


def test_two_of_a_dgx_1_leave_a_quad_whole() -> None:
    choice = ExactChoice(machine("dgx1-v100"))
    group = choice.best(0b11111111 & ~0b1, 2)
    shape = machine("dgx1-v100")
    assert shape.nvlinks[members(group)[0]][members(group)[1]] == 2
    assert group & 0xF0 in (0, group), "both of one quad"


def test_what_is_required_stays_even_where_it_is_slow() -> None:
    choice = ExactChoice(machine("a100-pcie-pairs"))
    assert choice.best(0b111111, 3, required=0b100010) & 0b100010 == 0b100010


@pytest.mark.parametrize(
    ("available", "size", "required"), [(0b11, 3, 0), (0b11, 1, 0b11), (0b11, 2, 0b100), (0, 1, 0)]
)
def test_a_request_that_no_set_fits_is_an_error(available: int, size: int, required: int) -> None:
    with pytest.raises(ValueError, match="no "):
        ExactChoice(machine("dgx1-v100")).best(available, size, required)


def test_sixteen_gpus_behind_nvswitch_are_lowest_first() -> None:
    """All sets are as fast and leave as much, also where a search goes over 12,870 of them."""
    assert ExactChoice(machine("hgx-16")).best(0xFFFE, 8, required=1 << 15) == 0x80FE


def test_gpus_that_are_all_alike_take_no_trials() -> None:
    """The kubelet starts no pod while it waits for the answer."""
    workspace = Workspace()
    choice = ExactChoice(machine("hgx-16"), workspace)
    with workspace.counted(1):
        assert choice.best(0xFFFF, 8) == 0xFF
        assert choice.best(0xFFF0, 3, 0x8010) == 0x8030
        assert choice.best(0xFFF0, 1) == 0x10


def test_too_much_work_is_given_up() -> None:
    workspace = Workspace(most_steps=60)
    choice = ExactChoice(machine("dgx1-v100"), workspace)
    with pytest.raises(TooMuchWork), workspace.counted():
        choice.best(0xFF, 4)
