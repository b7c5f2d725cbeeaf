# SPDX-License-Identifier: Apache-2.0
"""Who holds what, what is free, what is held in vain; formulas by hand."""

from __future__ import annotations

from typing import Any

import pytest

from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot
from discovery.sample import GpuSample
from exporters.device_user_names import ContainerUser
from exporters.gpuscape.families import GpuscapeFamilies
from exporters.gpuscape.node_view import GpuAllocation
from exporters.gpuscape.waste import WINDOW_SECONDS
from health.health_verdict import Health, HealthVerdict
from tests import build
from tests.exporters.gpuscape_series import Found, by_gpu, held, instance, linked, of, split, told

LONG = WINDOW_SECONDS + 100


def after(
    *gpus: GpuSnapshot, allocation: GpuAllocation | None, seconds: float = LONG, **readings: Any
) -> bytes:
    """The exposition after two samples with the same readings, so far apart."""
    families = GpuscapeFamilies()
    for at in (1000.0, 1000.0 + seconds):
        samples = [build.sample(gpu, at_seconds=at, **readings) for gpu in gpus]
        body = families.render(build.node(gpus), samples, allocation=allocation)
    return body


def test_a_gpu_is_allocated_if_it_or_an_instance_of_it_is_held() -> None:
    gpus = [build.gpu(0), build.gpu(1), split(2, instance(1), instance(2))]
    allocation = held(GpuPart(gpus[0].bus_id), GpuPart(gpus[2].bus_id, 2))

    body = GpuscapeFamilies().render(build.node(gpus), (), allocation=allocation)

    assert list(by_gpu(body, "gpuscape_gpu_allocated").values()) == [1, 0, 1]
    assert of(body, "gpuscape_mig_instance_allocated") == {
        (("gpu_instance_id", "1"),): 0,
        (("gpu_instance_id", "2"),): 1,
    }


def test_each_container_that_holds_something_is_told_once() -> None:
    gpu = split(0, instance(3))
    shares = tuple(
        ContainerUser(namespace="n", pod="p", container="c", share=str(at)) for at in (0, 1)
    )
    other = ContainerUser(namespace="n", pod="q", container="c")
    allocation = GpuAllocation(users={GpuPart(gpu.bus_id, 3): (*shares, other)})

    found = told("gpuscape_pod_gpu_info", build.node([gpu]), allocation=allocation)

    base = {"gpu_instance_id": "3", "namespace": "n", "container": "c"}
    assert list(found) == [tuple(sorted((base | {"pod": pod}).items())) for pod in ("p", "q")]


def test_a_whole_gpu_is_held_without_an_instance() -> None:
    gpu = build.gpu()

    (labels,) = told(
        "gpuscape_pod_gpu_info", build.node([gpu]), allocation=held(GpuPart(gpu.bus_id))
    )

    assert dict(labels) == {"namespace": "team", "pod": "train-0", "container": "main"}


def test_resources_are_counted_as_the_kubelet_counts_them() -> None:
    allocation = GpuAllocation(
        allocatable={"nvidia.com/gpu": 8},
        allocated={"nvidia.com/mig-1g.5gb": 1, "nvidia.com/gpu": 3},
    )
    gpus, mig = ((("resource", f"nvidia.com/{name}"),) for name in ("gpu", "mig-1g.5gb"))
    found = [
        told(f"gpuscape_resource_{name}", build.node(), allocation=allocation)
        for name in ("allocatable", "allocated")
    ]

    assert found == [{gpus: 8, mig: 0}, {gpus: 3, mig: 1}]
    assert [list(series) for series in found] == [[gpus, mig]] * 2, "in the order of their names"


def test_where_nobody_tells_who_holds_what_nothing_is_said_of_it() -> None:
    gpus = [build.gpu(0), split(1, instance(1))]

    body = after(*gpus, allocation=None)

    assert b"alloc" not in body
    assert b"_free_gpus" not in body
    assert b"_pod_" not in body


def test_free_is_what_a_pod_could_be_given_whole_now() -> None:
    gpus = [build.gpu(at) for at in range(5)]
    gpus[4] = build.gpu(4, mig=build.SPLIT)
    bus_ids = [gpu.bus_id for gpu in gpus]
    allocation = held(GpuPart(bus_ids[0]), whole=[bus_ids[0], bus_ids[1], bus_ids[2], bus_ids[4]])
    health = {
        bus_ids[1]: HealthVerdict(health=Health.DEGRADED, reason="x"),
        bus_ids[2]: HealthVerdict(health=Health.UNHEALTHY, reason="y"),
    }

    found = told("gpuscape_free_gpus", build.node(gpus), allocation=allocation, health=health)

    # 0 is held, 2 is unhealthy, 3 is not offered whole, 4 has MIG on
    assert found == {(): 1}


@pytest.mark.parametrize(("free", "island", "ratio"), [((0, 1), 2, 0), ((0, 2), 1, 0.5)])
def test_fragmentation_is_that_of_the_free_gpus(
    free: tuple[int, ...], island: int, ratio: float
) -> None:
    gpus = [build.gpu(at) for at in range(4)]
    topology = linked([[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]])
    node, whole = build.node(gpus, topology=topology), [gpu.bus_id for gpu in gpus]
    allocation = held(*(GpuPart(whole[at]) for at in range(4) if at not in free), whole=whole)

    body = GpuscapeFamilies().render(node, (), allocation=allocation)

    assert of(body, "gpuscape_free_gpus") == {(): 2}
    assert of(body, "gpuscape_free_gpus_largest_island") == {(): island}
    assert of(body, "gpuscape_free_gpus_fragmentation_ratio") == {(): ratio}


def test_without_free_gpus_there_is_no_fragmentation() -> None:
    gpu = build.gpu()
    allocation = held(GpuPart(gpu.bus_id), whole=[gpu.bus_id])

    body = GpuscapeFamilies().render(build.node([gpu]), (), allocation=allocation)

    assert of(body, "gpuscape_free_gpus_largest_island") == {(): 0}
    assert of(body, "gpuscape_free_gpus_fragmentation_ratio") == {}


def test_a_gpu_that_is_held_and_idles_is_waste() -> None:
    gpu = build.gpu()

    body = after(gpu, allocation=held(GpuPart(gpu.bus_id)), gpu_busy_ratio=0.0)

    assert of(body, "gpuscape_allocated_seconds_total") == {(): LONG}
    assert of(body, "gpuscape_allocated_idle_seconds_total") == {(): 100}
    assert of(body, "gpuscape_allocated_idle") == {(): 1}
    assert of(body, "gpuscape_allocated_idle_ratio") == {(): 1}
    assert of(body, "gpuscape_allocated_unmeasured") == {(): 0}


def test_a_gpu_that_is_held_and_works_is_none() -> None:
    gpu = build.gpu()

    body = after(gpu, allocation=held(GpuPart(gpu.bus_id)), gpu_busy_ratio=0.6)

    assert of(body, "gpuscape_allocated_idle_seconds_total") == {(): 0}
    assert of(body, "gpuscape_allocated_idle") == {(): 0}
    assert of(body, "gpuscape_allocated_idle_ratio") == {(): 0}


def test_a_gpu_that_nobody_holds_is_not_idle_in_this_sense() -> None:
    gpu = build.gpu()

    body = after(gpu, allocation=GpuAllocation())

    assert of(body, "gpuscape_allocated_seconds_total") == {(): 0}
    assert of(body, "gpuscape_allocated_idle") == {}
    assert of(body, "gpuscape_allocated_idle_ratio") == {}


def test_before_hopper_nothing_is_said_of_instances_but_that_it_is_not_known() -> None:
    gpu = split(0, instance(1), instance(2))

    body = after(
        gpu, allocation=held(GpuPart(gpu.bus_id, 1)), gpu_busy_ratio=None, memory_busy_ratio=None
    )

    assert of(body, "gpuscape_allocated_seconds_total") == {
        (("gpu_instance_id", "1"),): LONG,
        (("gpu_instance_id", "2"),): 0,
    }
    for name in ("idle", "idle_seconds_total", "idle_ratio"):
        assert of(body, f"gpuscape_allocated_{name}") == {}
    assert of(body, "gpuscape_allocated_unmeasured") == {(): 1}


def test_on_hopper_each_instance_is_judged_by_its_own_activity() -> None:
    gpu = split(0, instance(1, slices=1), instance(2, slices=3))

    body = after(
        gpu,
        allocation=held(GpuPart(gpu.bus_id, 1), GpuPart(gpu.bus_id, 2)),
        gpu_busy_ratio=None,
        mig_profiling=((1, ((1, 0.0),)), (2, ((1, 0.9),))),
    )

    assert of(body, "gpuscape_allocated_idle") == {
        (("gpu_instance_id", "1"),): 1,
        (("gpu_instance_id", "2"),): 0,
    }
    # one slice of the four that are held
    assert of(body, "gpuscape_allocated_idle_ratio") == {(): 0.25}


def test_a_whole_gpu_weighs_as_much_as_all_of_its_slices() -> None:
    whole, parts = build.gpu(0), split(1, instance(1, slices=3))
    allocation = held(GpuPart(whole.bus_id), GpuPart(parts.bus_id, 1))

    body = after(
        whole, parts, allocation=allocation, gpu_busy_ratio=0.0, mig_profiling=((1, ((1, 0.9),)),)
    )

    # 7 slices idle, 3 slices busy
    assert of(body, "gpuscape_allocated_idle_ratio") == {(): pytest.approx(0.7)}


def test_activity_since_the_last_sample_is_believed_before_the_utilisation_at_its_end() -> None:
    gpu = build.gpu()
    allocation = held(GpuPart(gpu.bus_id))

    body = after(gpu, allocation=allocation, gpu_busy_ratio=0.0, profiling=((1, 0.4),))

    assert of(body, "gpuscape_allocated_idle") == {(): 0}


def test_a_share_that_is_not_known_leaves_the_nodes_ratio_out() -> None:
    gpu = build.gpu(mig=build.SPLIT, mig_devices=(instance(1),), max_mig_devices=None)

    body = after(gpu, allocation=held(GpuPart(gpu.bus_id, 1)), mig_profiling=((1, ((1, 0.0),)),))

    assert of(body, "gpuscape_allocated_idle") == {(("gpu_instance_id", "1"),): 1}
    assert of(body, "gpuscape_allocated_idle_ratio") == {}


def test_without_samples_no_time_passes() -> None:
    gpu = build.gpu()
    families, allocation = GpuscapeFamilies(), held(GpuPart(gpu.bus_id))

    def seconds(*samples: GpuSample) -> Found:
        body = families.render(build.node([gpu]), samples, allocation=allocation)
        return of(body, "gpuscape_allocated_seconds_total")

    assert seconds(build.sample(gpu, at_seconds=10.0)) == {(): 0}
    assert seconds(build.sample(gpu, at_seconds=20.0)) == {(): 10}
    assert seconds() == {(): 10}
    assert seconds(build.sample(gpu, at_seconds=90.0)) == {(): 10}
    assert seconds(build.sample(gpu, at_seconds=95.0)) == {(): 15}
