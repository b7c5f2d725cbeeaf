# SPDX-License-Identifier: Apache-2.0
"""What is asked for is read, what is not costs nothing; what a GPU refuses is not asked again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pynvml as nv
import pytest

from discovery.model import Reason
from discovery.sample import GpuSample, LinkError, ReadingGroup
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return, Simulation, Spoil
from tests import machines
from tests.discovery.sampling import EVERY_GROUP, Sampler, leaves, sampler, small

FIRST, SECOND = machines.gpu(0).bus_id, machines.gpu(1).bus_id

ALWAYS = {
    "nvmlDeviceGetHandleByPciBusId_v2": 1,
    "nvmlDeviceGetClockInfo": 2,
    "nvmlDeviceGetTemperature": 1,
    "nvmlDeviceGetPowerUsage": 1,
    "nvmlDeviceGetEncoderUtilization": 1,
    "nvmlDeviceGetDecoderUtilization": 1,
    "nvmlDeviceGetRemappedRows": 1,
    "nvmlDeviceGetGridLicensableFeatures_v4": 1,
    "nvmlDeviceGetUtilizationRates": 1,
    "nvmlDeviceGetFieldValues": 1,
    "nvmlDeviceGetMemoryInfo_v2": 1,
    "nvmlDeviceGetMigMode": 1,
}
"""What a sample costs where nobody asked for more; the handle is the test's own."""

FIELDS_OF = {
    ReadingGroup.PROFILING: {"profiling", "mig_profiling"},
    ReadingGroup.PIPES: {"profiling", "mig_profiling"},
    ReadingGroup.ENGINES: {"profiling", "mig_profiling"},
    ReadingGroup.TOTALS: {"profiling", "mig_profiling"},
    ReadingGroup.CACHES: {"profiling", "mig_profiling"},
    ReadingGroup.BOARD: {"board"},
    ReadingGroup.NUMBERS: {"numbers"},
    ReadingGroup.ECC_BY_LOCATION: {"memory_errors"},
    ReadingGroup.NVLINK_ERRORS_BY_LINK: {"link_errors"},
    ReadingGroup.SPARE_ROWS: {"spare_rows"},
    ReadingGroup.CLOCK_EVENTS: {"clock_event_reasons"},
    ReadingGroup.HELD_DOWN: {"held_down"},
    ReadingGroup.ECC: {"ecc_errors", "retired_pages"},
    ReadingGroup.LIMITS: {"power_limits", "temperature_limits"},
    ReadingGroup.WORKING_LIMIT: {"temperature_limits"},
    ReadingGroup.CLOCKS: {"clocks"},
    ReadingGroup.INSTANT_POWER: {"instant_power_watts"},
    ReadingGroup.PCIE: {"pcie"},
    ReadingGroup.BAR1: {"bar1"},
    ReadingGroup.FAN: {"fan_ratio", "performance_state"},
    ReadingGroup.NVLINK_ERRORS: {"nvlink_errors"},
    ReadingGroup.LINKS: {"links"},
    ReadingGroup.LINK_ERRORS: {"links"},
    ReadingGroup.P2P: {"nvlink_p2p"},
    ReadingGroup.PROCESSES: {"processes"},
}

SEPARATE = {ReadingGroup.NUMBERS, ReadingGroup.LINKS, ReadingGroup.LINK_ERRORS}
"""Groups of fields that have a call of their own."""


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path) as taken:
        yield taken


def heads(sample: GpuSample) -> set[str]:
    """Fields that hold something, or whose gap says why they do not."""
    paths = (*leaves(sample), *(gap.what for gap in sample.gaps))
    return {path.partition(".")[0] for path in paths}


def test_without_groups_a_sample_makes_the_calls_it_always_made(taken: Sampler) -> None:
    assert taken.calls(lambda: taken.sample(FIRST, ())) == Counter(ALWAYS)


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_a_group_gives_its_fields_and_no_others(taken: Sampler, group: ReadingGroup) -> None:
    """Nor a gap for what was not asked for, whatever the GPU lacks."""
    taken.simulation.add_process(FIRST, 71, percent=50)
    without = heads(taken.sample(FIRST, ()))
    taken.sample(FIRST, (group,))
    more = heads(taken.sample(FIRST, (group,))) - without
    assert more - {"mig_profiling"} == FIELDS_OF[group] - {"mig_profiling"}


@pytest.mark.parametrize("kind", [ReadingGroup.NUMBERS, ReadingGroup.LINKS])
def test_fields_of_a_gpu_are_in_one_call_and_those_of_a_kind_in_one_more(
    taken: Sampler, kind: ReadingGroup
) -> None:
    plain = [group for group in ReadingGroup if group not in SEPARATE]
    for groups, expected in ((plain, 1), ([*plain, kind], 2)):
        taken.sample(FIRST, groups)
        calls = taken.calls(partial(taken.sample, FIRST, groups))
        assert calls["nvmlDeviceGetFieldValues"] == expected


def test_a_field_that_a_gpu_does_not_have_is_read_once_after_each_discovery(
    taken: Sampler,
) -> None:
    """Until then the gap stays; fields that it has are read each time."""

    def numbers() -> tuple[tuple[int, int], ...]:
        sample = taken.sample(FIRST, (ReadingGroup.NUMBERS,))
        assert [gap.what for gap in sample.gaps].count("numbers") == 1
        return sample.numbers

    taken.history.rediscovered({FIRST})
    first = numbers()
    taken.simulation.set_readings(FIRST, fields={170: 4})  # a GPU of the plain kind has no C2C
    second = numbers()
    taken.history.rediscovered({FIRST})
    third = numbers()

    assert 170 not in dict(first)
    assert 170 not in dict(second)
    assert dict(third)[170] == 4


@pytest.mark.parametrize(
    ("group", "field", "call", "key"),
    [
        (
            ReadingGroup.ECC_BY_LOCATION,
            "memory_errors",
            "nvmlDeviceGetMemoryErrorCounter",
            (0, 1, 7),
        ),
        (
            ReadingGroup.NVLINK_ERRORS_BY_LINK,
            "link_errors",
            "nvmlDeviceGetNvLinkErrorCounter",
            (1, 3),
        ),
    ],
)
@pytest.mark.parametrize("code", [nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_INVALID_ARGUMENT])
def test_a_counter_that_a_gpu_does_not_have_is_read_once_after_each_discovery(
    taken: Sampler, group: ReadingGroup, field: str, call: str, key: tuple[int, ...], code: int
) -> None:
    taken.simulation.fault(Return(code=code), call)
    first = taken.sample(FIRST, (group,))
    taken.simulation.clear()
    name = f"{call}({','.join(map(str, key))})"
    taken.simulation.set_readings(FIRST, numbers={name: 4})
    calls = taken.calls(partial(taken.sample, FIRST, (group,)))
    second = taken.sample(FIRST, (group,))
    taken.history.rediscovered({FIRST})
    third = taken.sample(FIRST, (group,))

    for refused in (first, second):
        assert getattr(refused, field) == ()
        assert [gap.what for gap in refused.gaps].count(field) == 1
    assert calls[call] == 0
    assert dict(getattr(third, field))[key] == 4


def test_drivers_before_535_tell_clock_events_by_the_older_name(taken: Sampler) -> None:
    taken.simulation.set_readings(FIRST, event_reasons=0x8)
    newer = "nvmlDeviceGetCurrentClocksEventReasons"
    taken.simulation.fault(Return(code=nv.NVML_ERROR_FUNCTION_NOT_FOUND), newer)

    sample = taken.sample(FIRST, (ReadingGroup.CLOCK_EVENTS,))

    assert sample.clock_event_reasons == 0x8
    assert not [gap for gap in sample.gaps if gap.what == "clock_event_reasons"]


def test_a_lost_gpu_keeps_what_was_read_before(taken: Sampler) -> None:
    lost = Return(code=nv.NVML_ERROR_GPU_IS_LOST)
    taken.simulation.fault(lost, "nvmlDeviceGetFanSpeed", bus_id=FIRST)

    sample = taken.sample(FIRST)

    assert (sample.gaps[-1].what, sample.gaps[-1].reason) == ("state", Reason.LOST)
    assert sample.ecc_errors is not None
    assert sample.processes == ()
    assert sample.links == ()


# links


def test_links_that_are_down_are_left_out_from_the_next_discovery_on(taken: Sampler) -> None:
    """Until then their counters stand still."""
    asked = (ReadingGroup.LINKS,)
    before = [link.link for link in taken.sample(FIRST, asked).links]
    taken.simulation.links_down(FIRST, 0)
    then = [link.link for link in taken.sample(FIRST, asked).links]
    taken.history.rediscovered({FIRST})
    after = [link.link for link in taken.sample(FIRST, asked).links]
    assert (before, then, after) == ([0, 1], [0, 1], [1])


def test_which_links_are_up_is_asked_once_for_each_discovery(taken: Sampler) -> None:
    asked = (ReadingGroup.LINKS,)
    first = taken.calls(lambda: taken.sample(FIRST, asked))
    second = taken.calls(lambda: taken.sample(FIRST, asked))
    assert (first["nvmlDeviceGetNvLinkState"], second["nvmlDeviceGetNvLinkState"]) == (2, 0)


def test_links_before_nvlink_5_count_no_errors_each_and_say_so_once(tmp_path: Path) -> None:
    with small(tmp_path, nvlink_version=6) as taken:
        sample = taken.sample(FIRST, (ReadingGroup.LINKS, ReadingGroup.NVLINK_ERRORS))

    gaps = [gap for gap in sample.gaps if gap.what.startswith("links")]
    assert [(gap.what, gap.reason) for gap in gaps] == [("links.errors", Reason.UNSUPPORTED)]
    assert [link.errors for link in sample.links] == [(), ()]
    assert sample.nvlink_errors is not None


def test_links_since_nvlink_5_count_errors_each_and_none_together(taken: Sampler) -> None:
    sample = taken.sample(FIRST, (ReadingGroup.LINKS, ReadingGroup.NVLINK_ERRORS))

    assert [dict(link.errors).keys() for link in sample.links] == [set(LinkError)] * 2
    assert sample.nvlink_errors is None


def test_a_gpu_without_nvlink_has_no_links_and_one_gap(tmp_path: Path) -> None:
    with small(tmp_path, nvlink_links=0) as taken:
        sample = taken.sample(FIRST, (ReadingGroup.LINKS,))

    gaps = [gap.reason for gap in sample.gaps if gap.what.startswith("links")]
    assert (sample.links, gaps) == ((), [Reason.UNSUPPORTED])


# pairs


def test_each_pair_is_asked_in_both_directions_once_for_each_discovery(taken: Sampler) -> None:
    asked = (ReadingGroup.P2P,)
    counts = [
        taken.calls(lambda: [taken.sample(gpu, asked) for gpu in (FIRST, SECOND)]) for _ in range(2)
    ]
    taken.history.rediscovered({FIRST, SECOND})
    counts.append(taken.calls(lambda: taken.sample(FIRST, asked)))

    # the log has a call once for each GPU that it is about
    assert [count["nvmlDeviceGetP2PStatus"] / 2 for count in counts] == [2, 0, 1]


def test_a_pair_s_status_is_that_of_nvlink_and_changes_with_the_next_discovery(
    taken: Sampler,
) -> None:
    asked = (ReadingGroup.P2P,)
    before = taken.sample(FIRST, asked).nvlink_p2p
    taken.simulation.links_down(SECOND, 0, 1)
    then = taken.sample(FIRST, asked).nvlink_p2p
    taken.history.rediscovered({FIRST, SECOND})
    after = taken.sample(FIRST, asked).nvlink_p2p

    assert before == then == ((SECOND, nv.NVML_P2P_STATUS_OK),)
    assert after == ((SECOND, nv.NVML_P2P_STATUS_NOT_SUPPORTED),)


def test_a_pair_with_a_lost_gpu_is_a_gap_and_the_other_pairs_are_told(tmp_path: Path) -> None:
    third = machines.gpu(2)
    gpus = (machines.gpu(0), machines.gpu(1), third)
    with small(tmp_path, *gpus) as taken:
        lost = Return(code=nv.NVML_ERROR_GPU_IS_LOST)
        taken.simulation.fault(lost, "nvmlDeviceGetP2PStatus", times=1)
        sample = taken.sample(FIRST, (ReadingGroup.P2P,))

    told = [(gap.what, gap.reason) for gap in sample.gaps if gap.what in ("nvlink_p2p", "state")]
    assert told == [("nvlink_p2p", Reason.LOST)]
    assert sample.nvlink_p2p == ((third.bus_id, nv.NVML_P2P_STATUS_OK),)


# processes


def busy(sample: GpuSample) -> dict[int, float | None]:
    return {process.pid: process.busy_ratio for process in sample.processes}


def test_how_busy_processes_are_is_told_from_the_second_time_on(taken: Sampler) -> None:
    """The first answer holds what was before anybody asked."""
    taken.simulation.add_process(FIRST, 71, percent=30)
    taken.simulation.add_process(FIRST, 72, percent=0)

    seen = [busy(taken.sample(FIRST, (ReadingGroup.PROCESSES,))) for _ in range(2)]

    assert seen == [{71: None, 72: None}, {71: 0.3, 72: 0.0}]


def test_the_driver_is_asked_for_what_came_since_the_newest_it_told(taken: Sampler) -> None:
    """Asked about all times, it would tell of processes as they were long ago."""
    taken.simulation.add_process(FIRST, 71, percent=30)
    taken.sample(FIRST, (ReadingGroup.PROCESSES,))

    again = taken.sample(FIRST, (ReadingGroup.PROCESSES,), after=0.0)

    assert busy(again) == {71: None}


def test_where_the_driver_has_nothing_new_no_process_counts_as_idle(taken: Sampler) -> None:
    taken.simulation.add_process(FIRST, 71, percent=0)
    seen = [taken.sample(FIRST, (ReadingGroup.PROCESSES,)) for _ in range(2)]
    assert [busy(sample) for sample in seen] == [{71: None}, {71: None}]
    assert not [gap for sample in seen for gap in sample.gaps if gap.what == "processes"]


def test_a_process_is_not_idle_because_its_share_makes_no_sense(taken: Sampler) -> None:
    taken.simulation.add_process(FIRST, 71, percent=30)
    taken.sample(FIRST, (ReadingGroup.PROCESSES,))
    taken.simulation.fault(Spoil(garbage="max"), "nvmlDeviceGetProcessUtilization")
    sample = taken.sample(FIRST, (ReadingGroup.PROCESSES,))
    assert busy(sample) == {71: None}
    assert [gap.reason for gap in sample.gaps if gap.what == "processes"] == [Reason.GARBAGE]


def test_with_mig_on_nobody_is_asked_how_busy_processes_are(tmp_path: Path) -> None:
    three = MigInstanceSpec(profile="3g.20gb", start=0, id=2)
    with small(tmp_path, machines.gpu(0, mig=True, instances=(three,))) as taken:
        ids = {"gpu_instance_id": 2, "compute_instance_id": 0}
        taken.simulation.add_process(FIRST, 71, percent=30, **ids)
        calls = taken.calls(lambda: taken.sample(FIRST, (ReadingGroup.PROCESSES,)))
    assert calls["nvmlDeviceGetComputeRunningProcesses_v3"] == 2  # its length, then the list
    assert calls["nvmlDeviceGetProcessUtilization"] == 0


def test_a_process_that_works_in_two_ways_is_told_in_both(taken: Sampler) -> None:
    for kind in ("compute", "graphics"):
        taken.simulation.add_process(FIRST, 71, kind=kind, memory_mib=7, percent=10)
    taken.sample(FIRST, (ReadingGroup.PROCESSES,))
    rows = taken.sample(FIRST, (ReadingGroup.PROCESSES,)).processes
    assert {(it.pid, it.kind, it.memory_bytes) for it in rows} == {
        (71, "compute", 7 << 20),
        (71, "graphics", 7 << 20),
    }


def test_without_processes_utilization_is_not_asked(taken: Sampler) -> None:
    calls = taken.calls(lambda: taken.sample(FIRST, (ReadingGroup.PROCESSES,)))
    assert calls["nvmlDeviceGetProcessUtilization"] == 0


# which GPU has what


@pytest.mark.parametrize(
    ("machine", "has"),
    [
        ("t4", {"retired_pages"}),
        ("dgx1-v100", {"retired_pages", "links", "nvlink_errors"}),
        ("dgx-a100", {"links", "nvlink_errors"}),
        ("l40s", {"temperature_limits.margin"}),
        (
            "hgx-h100",
            {"links", "nvlink_errors", "profiling", "temperature_limits.margin"},
        ),
        (
            "hgx-b200",
            {
                "links",
                "links.0.errors",
                "profiling",
                "temperature_limits.margin",
            },
        ),
    ],
)
def test_each_generation_tells_what_it_can(tmp_path: Path, machine: str, has: set[str]) -> None:
    varying = {"retired_pages", "links", "links.0.errors", "nvlink_errors", "profiling"}
    varying |= {"pcie.sent_bytes", "temperature_limits.margin", "fan_ratio"}
    with sampler(lambda: Simulation.create(machine, tmp_path)) as taken:
        bus_id = next(iter(taken.simulation.state.gpus))
        taken.sample(bus_id)
        told = leaves(taken.sample(bus_id))

    always = {"clock_event_reasons", "held_down.power", "ecc_errors.corrected_volatile"}
    always |= {"power_limits.current", "pcie.width", "bar1.used_bytes", "performance_state"}
    assert always <= set(told)
    assert {name for name in varying if any(path.startswith(name) for path in told)} == has
