# SPDX-License-Identifier: Apache-2.0
"""The tool that counts what the tests notice: what it draws, counts and leaves out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscape.isolation import PACKAGES as PRODUCT
from tools.mutation.__main__ import SLOWER, START_SECONDS, patience
from tools.mutation.outcome import interval, module_table, renewed, sample, table
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


def test_modules_that_are_tried_anew_leave_what_became_of_the_others() -> None:
    """But for mutants that are not there any more."""
    kept = {"mig.a.x_f__mutmut_1": "survived", "mig.b.x_g__mutmut_1": "noticed", "mig.gone": "x"}
    every = ["mig.a.x_f__mutmut_1", "mig.a.x_f__mutmut_2", "mig.b.x_g__mutmut_1"]

    assert renewed(every, kept, {"mig.a.x_f__mutmut_1": "noticed"}) == {
        "mig.a.x_f__mutmut_1": "noticed",
        "mig.b.x_g__mutmut_1": "noticed",
    }


def test_a_hang_at_import_is_waited_for_as_long_as_the_tests_are_long(tmp_path: Path) -> None:
    """Tests that are not used do not count."""
    unbroken = tmp_path / "unbroken.json"
    unbroken.write_text(json.dumps({"seconds": [2.0, None, 4.0]}), "utf-8")

    assert patience(unbroken) == START_SECONDS + SLOWER * 6.0


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


TESTS = """
import warnings
import pytest

@pytest.mark.filterwarnings("ignore:mine")
def test_ignores():
    warnings.warn("mine")

@pytest.mark.filterwarnings("error:mine")
def test_refuses():
    warnings.warn("mine")
"""


def test_tests_are_run_with_the_filters_of_warnings_that_their_marks_set(tmp_path: Path) -> None:
    """Else tests in which a thread dies by intent fail now and then, and notice everything."""
    tests, orders = tmp_path / "test_warnings.py", tmp_path / "orders.json"
    tests.write_text(TESTS, "utf-8")
    unbroken, results = tmp_path / "unbroken.json", tmp_path / "results.jsonl"
    facts = {"mutants": [], "children": 1, "budget_seconds": 1}
    orders.write_text(json.dumps({**facts, "results": str(results), "unbroken": str(unbroken)}))
    plugins = ("tests.conftest", "tools.mutation.trials", "no:cacheprovider", "no:xdist")
    options = ["-c", str(ROOT / "pyproject.toml"), *(f"-p{name}" for name in plugins)]

    subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tests)],
        cwd=ROOT,
        env=os.environ | {"MUTATION_ORDERS": str(orders), "MUTANT_UNDER_TEST": "stats"},
        capture_output=True,
        check=False,
    )

    (failing,) = json.loads(unbroken.read_text("utf-8"))["failing"]
    assert failing.endswith("::test_refuses")
