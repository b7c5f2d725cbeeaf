# SPDX-License-Identifier: Apache-2.0
"""What a pod requests and what a node has left are reckoned as kube-scheduler does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from base.errors import BadInput
from scheduler.filters.filter_objects import CandidateNode, ConstrainedPod
from scheduler.filters.resource_fit import NodeLoad, load, requests, shortages

GPU = "nvidia.com/gpu"


def pod(*containers: Any, first: tuple[Any, ...] = (), **spec: Any) -> ConstrainedPod:
    its = {"containers": list(containers), "initContainers": list(first), **spec}
    return msgspec.convert({"spec": its}, ConstrainedPod)


def asks(amounts: dict[str, Any] | None = None, *, sidecar: bool = False, **its: Any) -> Any:
    resources = {"requests": amounts or {}, **its}
    return {"resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


def node(**allocatable: str) -> CandidateNode:
    named = {GPU if key == "gpu" else key: each for key, each in allocatable.items()}
    return msgspec.convert(
        {"metadata": {"name": "a"}, "status": {"allocatable": {"pods": "110", **named}}},
        CandidateNode,
    )


def short(
    wanted: dict[str, int], of: CandidateNode, pods: int = 0, **held: int
) -> list[tuple[str, str]]:
    named = {GPU if key == "gpu" else key: each for key, each in held.items()}
    found = shortages(wanted, of, NodeLoad(pods=pods, requests=named))
    return [(each.reason, each.detail) for each in found]


def test_containers_add_up() -> None:
    both = pod(asks({"cpu": "500m", GPU: 1}), asks({"cpu": 2, "memory": "1Ki"}))
    assert requests(both) == {"cpu": 2500, GPU: 1, "memory": 1024}


def test_limits_count_where_there_is_no_request() -> None:
    limited = pod(asks({"cpu": "1"}, limits={"cpu": "4", GPU: "2"}))
    assert requests(limited) == {"cpu": 1000, GPU: 2}


def test_the_largest_init_container_counts_where_it_is_more() -> None:
    largest = pod(asks({"cpu": 2, GPU: 1}), first=(asks({"cpu": 1, GPU: 4}), asks({GPU: 3})))
    assert requests(largest) == {"cpu": 2000, GPU: 4}


def test_a_sidecar_runs_beside_what_comes_after_it() -> None:
    """Of the init containers the second has one sidecar beside it, the first none."""
    mixed = pod(
        asks({"cpu": 1}),
        first=(asks({"cpu": 6}), asks({"cpu": 2}, sidecar=True), asks({"cpu": 5})),
    )
    assert requests(mixed) == {"cpu": 7000}
    assert requests(pod(asks({"cpu": 1}), first=(asks({"cpu": 2}, sidecar=True),))) == {"cpu": 3000}


def test_several_sidecars_add_up_while_the_pod_starts() -> None:
    two = tuple(asks({"cpu": 2}, sidecar=True) for _ in range(2))
    assert requests(pod(asks({"cpu": 1}), first=(*two, asks({"cpu": 4})))) == {"cpu": 8000}


def test_overhead_comes_on_top() -> None:
    assert requests(pod(asks({"cpu": 1}), overhead={"cpu": "250m", "memory": "1"})) == {
        "cpu": 1250,
        "memory": 1,
    }


def test_amounts_of_the_whole_pod_replace_the_sums_but_for_devices() -> None:
    whole = {"requests": {"cpu": "4", "hugepages-2Mi": "2Mi", GPU: "8"}, "limits": {"memory": "9"}}
    found = requests(pod(asks({"cpu": 1, GPU: 1}), resources=whole, overhead={"cpu": 1}))
    assert found == {"cpu": 5000, "hugepages-2Mi": 2 << 20, "memory": 9, GPU: 1}


def test_a_limit_of_the_whole_pod_replaces_no_requests_of_containers() -> None:
    assert requests(pod(asks({"cpu": 1}), resources={"limits": {"cpu": "4"}})) == {"cpu": 1000}


def test_a_pod_without_requests_asks_for_nothing() -> None:
    assert requests(ConstrainedPod()) == {}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (pod(asks({"cpu": "2 cores"})), "spec.containers[0].resources.requests.cpu: '2 cores'"),
        (pod(asks(limits={GPU: "two"})), "spec.containers[0].resources.limits.nvidia.com/gpu: "),
        (pod(asks(), first=(asks(), asks({"cpu": ""}))), "spec.initContainers[1].resources.req"),
        (pod(asks(), overhead={"cpu": "x"}), "spec.overhead.cpu: 'x' is no quantity"),
        (pod(asks(), resources={"requests": {"cpu": "x"}}), "spec.resources.requests.cpu: 'x'"),
    ],
)
def test_an_amount_that_is_none_is_named_with_its_key(spec: ConstrainedPod, place: str) -> None:
    with pytest.raises(BadInput) as error:
        requests(spec)
    assert str(error.value).startswith(place)


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
    assert load([{GPU: 2}, {GPU: 1, "cpu": 500}]) == NodeLoad(pods=2, requests={GPU: 3, "cpu": 500})


def test_a_nodes_amount_that_is_none_is_named() -> None:
    with pytest.raises(BadInput, match=r"^Node a: status\.allocatable\.cpu: 'x' is no quantity"):
        short({"cpu": 1}, node(cpu="x"))
