# SPDX-License-Identifier: Apache-2.0
"""What a pod requests is counted as the scheduler and the API server's quotas count it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import BadInput
from kube.amounts.pod_requests import pod_requests
from kube.objects.pod import PodSpec

GPU = "nvidia.com/gpu"


def pod(*containers: Any, first: tuple[Any, ...] = (), **spec: Any) -> PodSpec:
    its = {"containers": list(containers), "initContainers": list(first), **spec}
    return PodSpec.from_object(its)


def asks(amounts: dict[str, Any] | None = None, *, sidecar: bool = False, **its: Any) -> Any:
    resources = {"requests": amounts or {}, **its}
    return {"resources": resources, **({"restartPolicy": "Always"} if sidecar else {})}


def test_containers_add_up() -> None:
    both = pod(asks({"cpu": "500m", GPU: 1}), asks({"cpu": 2, "memory": "1Ki"}))
    assert pod_requests(both) == {"cpu": 2500, GPU: 1, "memory": 1024}


def test_limits_count_where_there_is_no_request() -> None:
    limited = pod(asks({"cpu": "1"}, limits={"cpu": "4", GPU: "2"}))
    assert pod_requests(limited) == {"cpu": 1000, GPU: 2}


def test_the_largest_init_container_counts_where_it_is_more() -> None:
    largest = pod(asks({"cpu": 2, GPU: 1}), first=(asks({"cpu": 1, GPU: 4}), asks({GPU: 3})))
    assert pod_requests(largest) == {"cpu": 2000, GPU: 4}


def test_a_sidecar_runs_beside_what_comes_after_it() -> None:
    """Of the init containers the second has one sidecar beside it, the first none."""
    mixed = pod(
        asks({"cpu": 1}),
        first=(asks({"cpu": 6}), asks({"cpu": 2}, sidecar=True), asks({"cpu": 5})),
    )
    assert pod_requests(mixed) == {"cpu": 7000}
    assert pod_requests(pod(asks({"cpu": 1}), first=(asks({"cpu": 2}, sidecar=True),))) == {
        "cpu": 3000
    }


def test_several_sidecars_add_up_while_the_pod_starts() -> None:
    two = tuple(asks({"cpu": 2}, sidecar=True) for _ in range(2))
    assert pod_requests(pod(asks({"cpu": 1}), first=(*two, asks({"cpu": 4})))) == {"cpu": 8000}


def test_overhead_comes_on_top() -> None:
    assert pod_requests(pod(asks({"cpu": 1}), overhead={"cpu": "250m", "memory": "1"})) == {
        "cpu": 1250,
        "memory": 1,
    }


def test_amounts_of_the_whole_pod_replace_the_sums_but_for_devices() -> None:
    whole = {"requests": {"cpu": "4", "hugepages-2Mi": "2Mi", GPU: "8"}, "limits": {"memory": "9"}}
    found = pod_requests(pod(asks({"cpu": 1, GPU: 1}), resources=whole, overhead={"cpu": 1}))
    assert found == {"cpu": 5000, "hugepages-2Mi": 2 << 20, "memory": 9, GPU: 1}


def test_a_limit_of_the_whole_pod_replaces_no_requests_of_containers() -> None:
    assert pod_requests(pod(asks({"cpu": 1}), resources={"limits": {"cpu": "4"}})) == {"cpu": 1000}


def test_a_pod_without_requests_asks_for_nothing() -> None:
    assert pod_requests(PodSpec()) == {}


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
def test_an_amount_that_is_none_is_named_with_its_key(spec: PodSpec, place: str) -> None:
    with pytest.raises(BadInput) as error:
        pod_requests(spec)
    assert str(error.value).startswith(place)


@st.composite
def containers(draw: st.DrawFn, *, sidecars: bool) -> list[dict[str, Any]]:
    """Of each up to 3; what is in limits alone and what is in both count alike."""
    made = []
    for _ in range(draw(st.integers(0, 3))):
        amounts = draw(st.dictionaries(st.sampled_from((GPU, "cpu")), st.integers(0, 4)))
        shape = draw(st.sampled_from(("requests", "limits", "both")))
        kinds = ("requests", "limits") if shape == "both" else (shape,)
        resources = {kind: dict(amounts) for kind in kinds}
        policy = {"restartPolicy": "Always"} if sidecars and draw(st.booleans()) else {}
        made.append({"resources": resources, **policy})
    return made


@given(
    first=containers(sidecars=True),
    then=containers(sidecars=False),
    overhead=st.dictionaries(st.just(GPU), st.integers(0, 2)),
)
def test_a_pod_requests_the_most_that_it_ever_runs_at_once(
    first: list[dict[str, Any]], then: list[dict[str, Any]], overhead: dict[str, int]
) -> None:
    """Judged by playing the pod's life: which containers run at each moment."""
    running: list[dict[str, Any]] = []
    moments = []
    for container in first:
        moments.append([*running, container])
        if container.get("restartPolicy"):
            running.append(container)
    moments.append([*running, *then])
    most: dict[str, int] = {}
    for moment in moments:
        total: Counter[str] = Counter()
        for container in moment:
            resources = container["resources"]
            total.update(resources.get("requests", resources.get("limits")))
        most = {name: max(most.get(name, 0), total[name]) for name in (*most, *total)}
    for name, amount in overhead.items():
        most[name] = most.get(name, 0) + amount

    found = pod_requests(pod(*then, first=tuple(first), overhead=overhead))

    units = {"cpu": 1000, GPU: 1}
    assert {name: count for name, count in found.items() if count} == {
        name: count * units[name] for name, count in most.items() if count
    }
