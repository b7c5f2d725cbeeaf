# SPDX-License-Identifier: Apache-2.0
"""How many connections fit into a process's file descriptors."""

from __future__ import annotations

import resource

import pytest

from web.connection_limits import descriptors, shares


@pytest.mark.parametrize(
    ("connections", "served", "waiting"),
    [
        (3000, 96, 2048),
        (2144, 96, 2048),
        (2143, 96, 2047),
        (193, 96, 97),
        (192, 96, 96),
        (191, 95, 96),
        (5, 2, 3),
        (4, 2, 2),
        (0, 2, 2),
        (-40, 2, 2),
    ],
)
def test_half_of_few_connections_are_served_and_all_that_are_left_wait(
    connections: int, served: int, waiting: int
) -> None:
    assert shares(connections, served=96, waiting=2048) == (served, waiting)


def test_the_limit_of_the_process_is_that_of_its_descriptors() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(777, before[1]), before[1]))
        assert descriptors() == min(777, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_no_limit_of_descriptors_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", {resource.RLIMIT_NOFILE: endless}.__getitem__)
    assert descriptors() is None
