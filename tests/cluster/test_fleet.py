# SPDX-License-Identifier: Apache-2.0
"""Many agents that start together: what they ask of the API server, and that all publish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import load
from tests.cluster.agents import Site

pytestmark = pytest.mark.cluster

MOST_REQUESTS_PER_SECOND = 250.0


def test_a_small_fleet_publishes_with_one_node_write_each(site: Site, tmp_path: Path) -> None:
    seen = load.run(site, tmp_path, nodes=100, publishers=10, processes=1, within=2.0, spread=2.0)
    assert seen.node_writes == 11


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_five_thousand_agents_that_start_within_half_a_minute_leave_the_server_room(
    site: Site, tmp_path: Path
) -> None:
    seen = load.whole(site, tmp_path)
    assert seen.node_writes == load.AGENTS
    assert seen.requests <= MOST_REQUESTS_PER_SECOND
