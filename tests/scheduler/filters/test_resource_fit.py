# SPDX-License-Identifier: Apache-2.0
"""What a node has left is compared with what a pod requests as kube-scheduler does."""

from __future__ import annotations

import msgspec
import pytest

from base.errors import BadInput
from kube.objects.node import Node
from scheduler.filters.resource_fit import NodeLoad, node_load, shortages

GPU = "nvidia.com/gpu"


def node(**allocatable: str) -> Node:
    named = {GPU if key == "gpu" else key: each for key, each in allocatable.items()}
    return msgspec.convert(
        {"metadata": {"name": "a"}, "status": {"allocatable": {"pods": "110", **named}}},
        Node,
    )


def short(wanted: dict[str, int], of: Node, pods: int = 0, **held: int) -> list[tuple[str, str]]:
    named = {GPU if key == "gpu" else key: each for key, each in held.items()}
    found = shortages(wanted, of, NodeLoad(pods=pods, requests=named))
    return [(each.reason, each.detail) for each in found]


def test_a_node_that_has_enough_is_short_of_nothing() -> None:
    assert not short({"cpu": 1000, GPU: 4}, node(cpu="2", gpu="8"), cpu=1000, gpu=4)


def test_every_resource_of_which_too_little_is_left_is_named_in_order() -> None:
    wanted = {"x/y": 1, GPU: 4, "memory": 2 << 30, "cpu": 1500, "ephemeral-storage": 1 << 30}
    assert short(wanted, node(cpu="2", memory="3Gi", gpu="8"), cpu=1000, memory=2 << 30, gpu=5) == [
        ("Insufficient cpu", "1.5 requested, 1 of 2 left"),
        ("Insufficient memory", "2.0 GiB requested, 1.0 GiB of 3.0 GiB left"),
        ("Insufficient ephemeral-storage", "1.0 GiB requested, 0.0 GiB of 0.0 GiB left"),
        ("Insufficient nvidia.com/gpu", "4 requested, 3 of 8 left"),
        ("Insufficient x/y", "1 requested, 0 of 0 left"),
    ]


def test_a_node_whose_devices_have_gone_sick_has_none_left_and_not_fewer() -> None:
    assert short({GPU: 1}, node(gpu="2"), gpu=8) == [
        ("Insufficient nvidia.com/gpu", "1 requested, 0 of 2 left")
    ]


def test_a_resource_that_is_not_asked_for_is_not_checked() -> None:
    assert not short({GPU: 1, "cpu": 0}, node(cpu="1", gpu="1"), cpu=5000)


def test_the_number_of_pods_is_a_resource() -> None:
    assert not short({}, node(pods="4"), pods=3)
    assert short({}, node(pods="4"), pods=4) == [("Too many pods", "4 of 4")]


def test_what_bound_pods_hold_adds_up() -> None:
    assert node_load([{GPU: 2}, {GPU: 1, "cpu": 500}]) == NodeLoad(
        pods=2, requests={GPU: 3, "cpu": 500}
    )


def test_a_nodes_amount_that_is_none_is_named() -> None:
    with pytest.raises(BadInput, match=r"^Node a: status\.allocatable\.cpu: 'x' is no quantity"):
        short({"cpu": 1}, node(cpu="x"))
