# SPDX-License-Identifier: Apache-2.0
"""The tool that counts what the tests notice: what it draws, counts and leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuscape.isolation import PACKAGES as PRODUCT
from tools.mutation.outcome import interval, module_table, sample, table
from tools.mutation.scope import NOT_BROKEN, PACKAGES, Package

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"kube.lease.x_held__mutmut_{at}" for at in range(100)]
OUTCOMES = {
    "kube.lease.x_held__mutmut_1": "noticed",
    "kube.lease.x_held__mutmut_2": "timed out",
    "kube.lease.x_held__mutmut_3": "survived",
    "kube.watch.xǁWatchǁclose__mutmut_1": "without a test",
}


def rows(text: str) -> list[str]:
    """The rows of a table without its head."""
    return text.splitlines()[2:]


def test_the_same_seed_draws_the_same_mutants_and_another_seed_others() -> None:
    """In whatever order they are known; each at most once."""
    drawn = sample(NAMES, 10, "1")

    assert drawn == sample(NAMES[::-1], 10, "1")
    assert len(set(drawn)) == 10
    assert set(drawn) < set(NAMES)
    assert drawn != sample(NAMES, 10, "2")


def test_of_few_mutants_all_are_tried() -> None:
    """As many as there are."""
    assert sample(NAMES, 100, "1") == NAMES


@pytest.mark.parametrize(
    ("noticed", "tried", "low", "high"),
    [(0, 10, 0.0, 0.278), (5, 10, 0.237, 0.763), (10, 10, 0.722, 1.0), (90, 100, 0.826, 0.945)],
)
def test_the_interval_is_wilsons(noticed: int, tried: int, low: float, high: float) -> None:
    """Computed by hand, to three digits; never past 0 or 1."""
    assert interval(noticed, tried) == pytest.approx((low, high), abs=0.001)


def test_nothing_tried_says_nothing() -> None:
    """The interval is everything."""
    assert interval(0, 0) == (0.0, 1.0)


def test_a_hang_is_noticed_and_a_function_without_a_test_is_not() -> None:
    """Two of the four that were tried; the 50 others count for the total alone."""
    known = [*OUTCOMES, *(f"kube.watch.x_open__mutmut_{at}" for at in range(50))]

    assert rows(table(OUTCOMES, known)) == ["| kube | 54 | 4 | 1 | 1 | 1 | 1 | 50 % | 15 to 85 |"]


def test_each_module_has_its_row_and_an_interval_where_not_all_was_tried() -> None:
    """``kube.events`` was not drawn at all."""
    known = [*OUTCOMES, "kube.lease.x_held__mutmut_4", "kube.events.x_note__mutmut_1"]

    assert rows(module_table(OUTCOMES, known)) == [
        "| kube.events | 1 | 0 | 0 | 0 | 0 | 0 |  |  |",
        "| kube.lease | 4 | 3 | 1 | 1 | 1 | 0 | 67 % | 21 to 94 |",
        "| kube.watch | 1 | 1 | 0 | 0 | 0 | 1 | 0 % |  |",
    ]


def test_every_package_of_the_product_is_broken_or_has_its_reason() -> None:
    """A new package cannot be forgotten."""
    assert {each.name for each in PACKAGES} | set(NOT_BROKEN) == {"gpuscape", *PRODUCT}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: str(each.name))
def test_what_is_left_out_or_added_is_there(package: Package) -> None:
    """A path that moved would silently come back in, or its tests would be missing."""
    paths = [*package.left_out, *package.tests_left_out, *package.more_tests]

    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [path for path in package.more_tests if path.startswith(f"tests/{package.name}/")] == []
    assert not set(package.left_out) & set(package.modules(ROOT))
    assert package.modules(ROOT)
