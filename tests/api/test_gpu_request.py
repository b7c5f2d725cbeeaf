# SPDX-License-Identifier: Apache-2.0
"""What a pod holds, and which of its containers count."""

from __future__ import annotations

import pytest

from api.gpu_request import ContainerRequest, GpuRequest, Link, gpu_request

INIT, APP = True, False


def containers(*steps: tuple[int, bool]) -> GpuRequest:
    return GpuRequest(steps=tuple(ContainerRequest(gpus=gpus, ends=ends) for gpus, ends in steps))


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        (gpu_request(2), 2),
        (gpu_request(2, 1), 3),
        (containers((4, INIT), (2, APP)), 4),
        (containers((1, INIT), (2, APP)), 2),
        (containers((4, INIT), (3, INIT)), 4),
        (containers((1, APP), (4, INIT), (2, APP)), 5),
    ],
)
def test_a_pod_holds_the_most_that_its_containers_have_at_one_time(
    asked: GpuRequest, gpus: int
) -> None:
    """As the scheduler counts: KEP-753, sidecars before an init container are beside it."""
    assert asked.gpus == gpus


def test_containers_that_stay_count_and_others_only_where_none_stays() -> None:
    assert containers((4, INIT), (2, APP)).judged == (False, True)
    assert containers((4, INIT), (2, INIT)).judged == (True, True)


def test_several_are_the_gpus_of_those_that_count_and_have_more_than_one() -> None:
    assert containers((4, INIT), (2, APP), (1, APP), (3, APP)).several == (2, 3)
    assert containers((4, INIT), (1, APP)).several == ()
    assert containers((4, INIT), (1, INIT), (2, INIT)).several == (4, 2)


def test_a_wish_has_the_link_and_the_nic_that_are_asked_for() -> None:
    asked = gpu_request(1, 2, link=Link.NUMA, nic=True)
    assert ([step.gpus for step in asked.steps], asked.link, asked.nic) == ([1, 2], "numa", True)
    assert (gpu_request(1).link, gpu_request(1).nic) == (Link.ANY, False)
