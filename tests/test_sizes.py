# SPDX-License-Identifier: Apache-2.0
"""Each test runs in ``make test`` or in ``make test-rest``, and the list of slow ones is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from tests.sizes import LEFT_OUT, SLOW, is_rest, is_whole, is_without, versions_of
from tests.suite import CLUSTER, REST_OF_CLUSTER

ROOT = Path(__file__).parent.parent
CLUSTER_TESTS = "cluster and not gpu and not long"
MIXED = "tests/kube/test_contract.py"
"""A module whose tests run on both versions of Kubernetes."""


@pytest.mark.parametrize("name", SLOW)
def test_what_is_listed_as_slow_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert (ROOT / path).exists()
    assert not test or re.search(
        rf"^(async )?def {test}\b", (ROOT / path).read_text(), re.MULTILINE
    )


def test_nothing_is_listed_twice() -> None:
    assert [name for name in SLOW if name.startswith(tuple(set(SLOW) - {name}))] == []


def test_a_version_of_kubernetes_is_left_out_by_the_parameter() -> None:
    (older,) = LEFT_OUT
    assert is_rest("tests/web/test_tls.py::test_x", frozenset({older, "a"}))
    assert not is_rest("tests/web/test_tls.py::test_x", frozenset({"1.37", "a"}))


@pytest.mark.parametrize(("mark", "versions"), [("cluster", {"1.32"}), ("long", set())])
def test_a_version_counts_for_tests_of_the_control_plane_alone(
    request: pytest.FixtureRequest, mark: str, versions: set[str]
) -> None:
    """Other tests with such a parameter stay in ``make test``: the rest skips their modules."""
    item = request.node
    item.add_marker(mark)
    item.callspec.params["minor"] = "1.32"
    item.callspec.params["unhashable"] = []

    assert versions_of(item) == versions


@pytest.mark.parametrize("name", SLOW)
def test_no_module_with_a_slow_test_is_passed_over(name: str) -> None:
    path = PurePath(name.partition("::")[0])
    module = path if path.suffix else path / "test_any.py"
    assert is_whole(module) == ("::" not in name)
    assert not is_without(module)


def test_the_sizes_divide_the_tests_of_a_module() -> None:
    """By pytest's own collection."""
    every, quick, rest = (
        collected(marks) for marks in (CLUSTER_TESTS, CLUSTER[1], REST_OF_CLUSTER[1])
    )
    assert quick
    assert rest
    assert quick | rest == every
    assert not quick & rest


def collected(marks: str) -> set[str]:
    """Names of the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "-m", marks, MIXED], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {line for line in ended.stdout.splitlines() if "::" in line}
