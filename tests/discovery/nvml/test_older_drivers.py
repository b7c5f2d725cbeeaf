# SPDX-License-Identifier: Apache-2.0
"""Calls that an older driver refuses are made in their older form, and what it lacks is no fault.

How drivers refuse what they do not know: FUNCTION_NOT_FOUND (13) for a call, and for the version
of a struct ARGUMENT_VERSION_MISMATCH (25), or INVALID_ARGUMENT (2) from those before it had one.
Source: nvml.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from discovery.model import GpuSnapshot, Reason
from discovery.nvml.facts import read_gpu
from discovery.nvml.session import close_session, open_gpu, open_session
from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_terms import LinkPeer
from discovery.sample import ReadingGroup
from discovery.topology import link_bytes_per_second
from simulator.answers import fields
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return, Simulation
from tests import build, machines
from tests.discovery.sampling import Sampler, small

FIRST, SPLIT = machines.gpu(0), machines.gpu(1, mig=True, instances=(
    MigInstanceSpec(profile="3g.20gb", start=4, id=2),
))  # fmt: skip
INVALID, NOT_SUPPORTED, MISSING, OTHER_VERSION, UNKNOWN = 2, 3, 13, 25, 999
MEMORY = ("memory", "mig_memory")
NVLINK_SPEED_COMMON, NVLINK_LINK_COUNT, NVLINK_SPEED = 90, 91, 164
"""NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, _LINK_COUNT and _GET_SPEED of nvml.h."""


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path, FIRST, SPLIT) as taken:
        yield taken


def discovered(bus_id: str = FIRST.bus_id) -> GpuSnapshot:
    handle, gap = open_gpu(bus_id)
    assert gap is None
    return read_gpu(bus_id, handle, {})


def unanswered(monkeypatch: pytest.MonkeyPatch, field: int, code: int = INVALID) -> None:
    """Have the driver refuse this field alone of those that are asked together."""

    def refuse(*_: object) -> int:
        raise Nvml(code)

    table = fields.LINK_FIELDS if field in fields.LINK_FIELDS else fields.GPU_FIELDS
    monkeypatch.setitem(table, field, refuse)


def answered_by_link(monkeypatch: pytest.MonkeyPatch, rate: Callable[[int], int]) -> None:
    """Have each link report this rate, in MB/s."""
    monkeypatch.setitem(fields.LINK_FIELDS, NVLINK_SPEED, lambda _gpu, link: rate(link))


# memory


@pytest.mark.parametrize("code", [INVALID, NOT_SUPPORTED, MISSING, OTHER_VERSION])
def test_memory_is_read_by_the_first_version_where_the_second_is_not_known(
    taken: Sampler, code: int
) -> None:
    newer = taken.sample(FIRST.bus_id, ()).memory
    taken.simulation.fault(Return(code=code), "nvmlDeviceGetMemoryInfo_v2")
    sample, split = taken.sample(FIRST.bus_id, ()), taken.sample(SPLIT.bus_id, ())
    assert newer is not None
    assert newer.reserved_bytes
    assert sample.memory is not None
    assert sample.memory.free_bytes == newer.free_bytes
    assert sample.memory.used_bytes == newer.used_bytes + newer.reserved_bytes
    assert sample.memory.reserved_bytes is None
    assert [instance for instance, _ in split.mig_memory] == [2]
    assert not [gap for gap in (*sample.gaps, *split.gaps) if gap.what in MEMORY]


def test_a_driver_that_fails_is_not_asked_in_another_way(taken: Sampler) -> None:
    taken.simulation.fault(Return(code=UNKNOWN), "nvmlDeviceGetMemoryInfo_v2")
    sample = taken.sample(FIRST.bus_id, ())
    assert sample.memory is None
    assert [gap.reason for gap in sample.gaps if gap.what == "memory"] == [Reason.FAILED]


# clock events


@pytest.mark.parametrize("code", [NOT_SUPPORTED, MISSING])
def test_clock_events_are_read_by_their_older_name(taken: Sampler, code: int) -> None:
    taken.simulation.set_readings(FIRST.bus_id, event_reasons=0x24)
    taken.simulation.fault(Return(code=code), "nvmlDeviceGetCurrentClocksEventReasons")
    assert taken.sample(FIRST.bus_id, (ReadingGroup.CLOCK_EVENTS,)).clock_event_reasons == 0x24


# the fabric


@pytest.mark.parametrize("code", [NOT_SUPPORTED, MISSING, OTHER_VERSION])
def test_the_fabric_is_read_by_the_first_call_without_its_health(tmp_path: Path, code: int) -> None:
    machine = load_machine("hgx-h100")
    simulated = Simulation.create(replace(machine, gpus=machine.gpus[:1]), tmp_path)
    with simulated:
        open_session()
        newer = build.nvidia(discovered(machine.gpus[0].bus_id)).fabric
        simulated.fault(Return(code=code), "nvmlDeviceGetGpuFabricInfoV")
        gpu = discovered(machine.gpus[0].bus_id)
        close_session()
    older = build.nvidia(gpu).fabric
    assert newer is not None
    assert older is not None
    assert newer.health_mask is not None
    assert older.health_mask is None
    assert older.cluster_uuid == newer.cluster_uuid
    assert older.registered
    assert gpu.gap("fabric") is None


# NVLinks


@pytest.mark.usefixtures("taken")
def test_without_their_number_links_are_tried_until_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As not valid, which is how NVML refuses a number after the last."""
    before = build.nvidia(discovered()).links
    unanswered(monkeypatch, NVLINK_LINK_COUNT)
    gpu = discovered()
    assert len(before) == 2
    assert build.nvidia(gpu).links == before
    assert gpu.gap("links") is None


@pytest.mark.parametrize("code", [INVALID, NOT_SUPPORTED])
def test_a_far_end_that_is_refused_is_unknown_and_no_gap(taken: Sampler, code: int) -> None:
    """So virtual machines have it."""
    taken.simulation.fault(Return(code=code), "nvmlDeviceGetNvLinkRemote*")
    gpu = discovered()
    assert [(link.peer, link.peer_bus_id) for link in build.nvidia(gpu).links] == [
        (LinkPeer.UNKNOWN, None)
    ] * 2
    assert gpu.gap("links") is None


@pytest.mark.parametrize("code", [INVALID, NOT_SUPPORTED])
def test_a_version_of_links_that_is_refused_is_no_gap(taken: Sampler, code: int) -> None:
    taken.simulation.fault(Return(code=code), "nvmlDeviceGetNvLinkVersion")
    gpu = discovered()
    assert [link.version for link in build.nvidia(gpu).links] == [None, None]
    assert gpu.gap("links") is None


def test_a_far_end_that_fails_is_a_gap(taken: Sampler) -> None:
    taken.simulation.fault(Return(code=UNKNOWN), "nvmlDeviceGetNvLinkRemoteDeviceType")
    gap = discovered().gap("links")
    assert gap is not None
    assert gap.reason is Reason.FAILED


# MIG devices


@pytest.mark.parametrize("code", [INVALID, 6])
def test_a_hole_in_the_numbers_of_mig_devices_is_no_gap(taken: Sampler, code: int) -> None:
    whole = discovered(SPLIT.bus_id)
    call = "nvmlDeviceGetMigDeviceHandleByIndex"
    taken.simulation.fault(Return(code=code), call, bus_id=SPLIT.bus_id)
    none = discovered(SPLIT.bus_id)
    assert [device.gpu_instance_id for device in whole.mig_devices] == [2]
    assert (none.mig_devices, none.gap("mig_devices")) == ((), None)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, MISSING, OTHER_VERSION])
def test_profiles_of_mig_are_read_by_the_first_version(taken: Sampler, code: int) -> None:
    taken.simulation.fault(Return(code=code), "nvmlDeviceGetGpuInstanceProfileInfoV")
    gpu = discovered(SPLIT.bus_id)
    assert [device.profile for device in gpu.mig_devices] == ["3g.20gb"]
    assert gpu.gap("mig_devices") is None


# the rate of each link


def rates() -> list[int | None]:
    return [link.bytes_per_second for link in build.nvidia(discovered()).links]


@pytest.mark.usefixtures("taken")
def test_each_link_has_the_rate_that_it_reports_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the slowest one counts for the GPU: links times rate never promises too much."""
    speeds = {0: 25_781, 1: 12_500}
    answered_by_link(monkeypatch, lambda link: speeds[link])
    gpu = discovered()
    assert [link.bytes_per_second for link in build.nvidia(gpu).links] == [
        25_781_000_000,
        12_500_000_000,
    ]
    assert link_bytes_per_second([gpu]) == (12_500_000_000,)


@pytest.mark.usefixtures("taken")
def test_links_that_report_no_rate_have_the_common_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As drivers before field 164 have it."""
    unanswered(monkeypatch, NVLINK_SPEED)
    monkeypatch.setitem(fields.GPU_FIELDS, NVLINK_SPEED_COMMON, lambda _gpu: 20_000)
    assert rates() == [20_000_000_000] * 2


@pytest.mark.usefixtures("taken")
def test_a_link_without_a_rate_does_not_borrow_that_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first_alone(link: int) -> int:
        if link:
            raise Nvml(UNKNOWN)
        return 25_781

    answered_by_link(monkeypatch, first_alone)
    gpu = discovered()
    gap = gpu.gap("link_rates")
    assert [link.bytes_per_second for link in build.nvidia(gpu).links] == [25_781_000_000, None]
    assert gap is not None
    assert (gap.reason, gap.source) == (Reason.FAILED, "nvmlDeviceGetFieldValues(164)")


@pytest.mark.usefixtures("taken")
def test_where_no_rate_is_known_there_is_none_and_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered(monkeypatch, NVLINK_SPEED)
    unanswered(monkeypatch, NVLINK_SPEED_COMMON)
    assert rates() == [None, None]
    assert discovered().gap("link_rates") is None
