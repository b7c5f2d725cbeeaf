# SPDX-License-Identifier: Apache-2.0
"""Readings that people look at, from a snapshot and two samples."""

from __future__ import annotations

from typing import Any

import pytest

from cli.top.gpu_rows import TopGpu, top_node
from cli.top.machine_watch import MachineReading
from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot, GpuState, NvLink, Xid
from discovery.sample import MemoryUse, PowerLimits, ProcessKind
from exporters.device_user_names import ContainerUser
from exporters.gpuscape.process_use import OfPod, ProcessUse
from tests import build

HERE = build.gpu().bus_id
TRAIN = ContainerUser(namespace="team", pod="train", container="main")
OTHER = ContainerUser(namespace="team", pod="other", container="main")


def row(gpu: GpuSnapshot | None = None, **reading: Any) -> TopGpu:
    """The first GPU of a node."""
    gpu = gpu or build.gpu()
    reading.setdefault("samples", (build.sample(gpu),))
    (found, *_) = top_node(MachineReading(snapshot=build.node([gpu]), **reading)).gpus
    return found


def use(**facts: Any) -> ProcessUse:
    return ProcessUse(**{"bus_id": HERE, "pid": "7", "kinds": (ProcessKind.COMPUTE,)} | facts)


def pod_of(process: ProcessUse, *users: ContainerUser, knows_pods: bool = True) -> str | None:
    (found,) = row(
        users={GpuPart(HERE): users}, processes=(process,), knows_pods=knows_pods
    ).processes
    return found.pod


def test_readings_are_the_samples() -> None:
    limits = build.only(PowerLimits, current=300.0, enforced=250.0)
    memory = MemoryUse(free_bytes=1, used_bytes=200 * build.MIB)
    sample = build.sample(
        build.gpu(), gpu_busy_ratio=0.5, memory_busy_ratio=0.25, memory=memory, power_limits=limits
    )
    found = row(samples=(sample,))
    assert (found.busy_ratio, found.memory_busy_ratio) == (0.5, 0.25)
    assert (found.memory_used_bytes, found.memory_total_bytes) == (200 * build.MIB, 300 * build.MIB)
    assert (found.celsius, found.memory_celsius) == (34, 41)
    assert (found.power_watts, found.power_limit_watts) == (55.123, 250.0)
    assert found.sm_clock_hertz == 210_000_000


def test_traffic_is_what_the_counters_grew_by_each_second() -> None:
    gpu = build.gpu()
    begin = build.sample(gpu, nvlink_sent_bytes=1000, nvlink_received_bytes=500)
    end = build.sample(gpu, at_seconds=104.0, nvlink_sent_bytes=9000, nvlink_received_bytes=700)
    found = row(samples=(end,), before=(begin,))
    assert found.nvlink_sent_bytes_per_second == 2000.0
    assert found.nvlink_received_bytes_per_second == 50.0


@pytest.mark.parametrize(
    ("begin", "end", "seconds"), [(9000, 1000, 4.0), (0, 9000, 0.0), (None, 9000, 4.0)]
)
def test_a_counter_that_began_anew_or_was_read_once_has_no_rate(
    begin: int | None, end: int, seconds: float
) -> None:
    gpu = build.gpu()
    before = build.sample(gpu, nvlink_sent_bytes=begin)
    now = build.sample(gpu, nvlink_sent_bytes=end, at_seconds=100.0 + seconds)
    assert row(samples=(now,), before=(before,)).nvlink_sent_bytes_per_second is None
    assert row(samples=(now,)).nvlink_sent_bytes_per_second is None


@pytest.mark.parametrize("state", [GpuState.HUNG, GpuState.LOST, GpuState.UNREADABLE])
def test_a_gpu_that_does_not_answer_has_its_state_and_no_reading(state: GpuState) -> None:
    gpu = build.gpu(state=state)
    found = row(gpu, processes=(use(),), users={GpuPart(HERE): (TRAIN,)})
    assert (found.state, found.answers) == (state.value, False)
    assert (found.busy_ratio, found.memory_used_bytes, found.power_watts) == (None, None, None)
    assert found.processes == ()
    assert found.pods == ("team/train/main",)


def test_a_gpu_that_needs_attention_says_why() -> None:
    assert row().state == "ok"
    assert row(build.gpu(xids=(Xid(code=79, count=1),))).state == "xid-79"


def test_only_what_holds_work_up_counts_as_held_down() -> None:
    bits = 0x001 | 0x002 | 0x004 | 0x040
    sample = build.sample(build.gpu(), clock_event_reasons=bits)
    assert row(samples=(sample,)).held_down_by == ("power_cap", "hw_thermal")


def test_links_that_are_up_are_counted_of_all() -> None:
    links = tuple(NvLink(link=at, active=at > 0) for at in range(4))
    found = row(build.gpu(links=links))
    assert (found.links_up, found.links) == (3, 4)


def test_a_mig_device_has_its_instances_memory_activity_and_holder() -> None:
    devices = (build.mig_device(gi=3), build.mig_device(gi=5))
    gpu = build.gpu(mig=build.SPLIT, mig_devices=devices)
    sample = build.sample(
        gpu,
        gpu_busy_ratio=0.9,
        profiling=((1, 0.4),),
        mig_memory=((5, MemoryUse(free_bytes=1, used_bytes=9)),),
        mig_profiling=((5, ((1, 0.7),)),),
    )
    found = row(gpu, samples=(sample,), users={GpuPart(HERE, 5): (TRAIN,)})
    assert found.busy_ratio == 0.4
    first, second = found.mig_devices
    assert (first.memory_used_bytes, first.busy_ratio, first.pods) == (None, None, ())
    assert (second.memory_used_bytes, second.busy_ratio) == (9, 0.7)
    assert second.pods == ("team/train/main",)


def test_a_process_gets_its_pods_name_by_uid_where_it_is_known() -> None:
    named = use(pod=OfPod(uid="u", namespace="team", name="other"))
    assert pod_of(named, TRAIN, OTHER) == "team/other/main"
    assert pod_of(named, TRAIN) == "team/other"


def test_else_by_the_only_container_that_holds_the_gpu() -> None:
    assert pod_of(use(pod=OfPod(uid="u")), TRAIN) == "team/train/main"
    assert pod_of(use(pod=OfPod(uid="u")), TRAIN, OTHER) == "uid u"
    assert pod_of(use(), TRAIN, knows_pods=False) == "team/train/main"


def test_a_process_of_the_host_is_no_pods() -> None:
    assert pod_of(use(), TRAIN) is None
