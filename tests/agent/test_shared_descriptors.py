# SPDX-License-Identifier: Apache-2.0
"""What the agent's servers may have of the process's descriptors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.client_limits import client_limits
from web.messages import ServerLimits


@pytest.mark.parametrize("descriptors", [0, 50, 64, 256, 1024, 1 << 20, None])
def test_the_servers_leave_what_the_agent_needs_and_serve_some_clients(
    descriptors: int | None,
) -> None:
    limits = client_limits(descriptors)

    assert all(each.connections >= 2 and each.waiting >= 2 for each in limits)
    if descriptors is not None and descriptors >= 64:
        assert sum(each.connections + each.waiting for each in limits) <= descriptors - 48


def test_where_descriptors_abound_the_limits_are_the_usual_ones() -> None:
    assert client_limits(1 << 20) == client_limits(None) == (ServerLimits(), ServerLimits())


def test_all_that_the_agent_does_not_need_is_shared_out_a_third_of_it_to_the_probes() -> None:
    usual = ServerLimits()
    assert client_limits(48 + 91) == (
        replace(usual, connections=30, waiting=31),
        replace(usual, connections=15, waiting=15),
    )
