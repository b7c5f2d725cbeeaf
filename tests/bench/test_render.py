# SPDX-License-Identifier: Apache-2.0
"""The benchmark measures what it says: the same series in both ways, and enough of them."""

from __future__ import annotations

import pytest

from tests.bench import render


def test_both_ways_render_the_same_series_of_a_full_node() -> None:
    assert render.measure(rounds=1).series == 8 * 7 * 68


def test_a_series_that_differs_ends_the_benchmark() -> None:
    ours = b"# HELP a x\n# TYPE a gauge\na 1\n"

    with pytest.raises(AssertionError):
        render.check_equal(ours, ours.replace(b"a 1", b"a 2"))


def test_only_the_names_of_counters_may_differ() -> None:
    ours = b"# HELP a x\n# TYPE a counter\na 1\n"
    theirs = b"# HELP a_total x\n# TYPE a_total counter\na_total 1\n"

    assert render.check_equal(ours, theirs) == 1
    with pytest.raises(AssertionError):
        render.check_equal(ours.replace(b"counter", b"gauge"), theirs)
