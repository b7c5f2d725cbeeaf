# SPDX-License-Identifier: Apache-2.0
"""The load that is measured reaches the extender: a large one is for the page alone."""

from __future__ import annotations

import pytest

from tests.bench import extender_memory


@pytest.mark.timeout(120)
def test_requests_of_all_kinds_are_scored_while_pods_come_and_go() -> None:
    seen = extender_memory.measure(nodes=40, requests=60)

    assert (seen.requests, seen.changes) == (60, 15)
    assert 60 * extender_memory.FEWEST_NAMES <= seen.names <= 60 * 40
    assert 0 < seen.scored <= 60
    assert seen.free_sets.keys() == set(extender_memory.MACHINES)
    assert min(seen.free_sets.values()) > 1
    assert 0 < min(seen.ready_mib, seen.after_mib) <= seen.peak_mib
