# SPDX-License-Identifier: Apache-2.0
"""GPM from one sample to the next: of whom, since when, and what becomes of the buffers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest
from msgspec.structs import replace

from discovery.model import Gap, Reason
from discovery.sample import PROFILED, GpuSample, ReadingGroup
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return, Spoil
from simulator.state import edits
from tests import machines
from tests.discovery.sampling import Sampler, small

TWO, THREE = (MigInstanceSpec(profile="3g.20gb", start=at, id=n) for at, n in ((0, 2), (4, 3)))
WHOLE, SPLIT = machines.gpu(0), machines.gpu(1, mig=True, instances=(TWO, THREE))
ASKED = tuple(PROFILED)
USUAL = (*PROFILED[ReadingGroup.PROFILING], *PROFILED[ReadingGroup.PIPES])
"""What every GPU with GPM has."""
TRAFFIC = (20, 21, 60, 61, *range(62, 98), *range(100, 104))
GRAPHICS, PCIE_SENT = 1, 20


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path, WHOLE, SPLIT) as taken:
        yield taken


def gaps(sample: GpuSample) -> list[Gap]:
    return [gap for gap in sample.gaps if "profiling" in gap.what]


def instances(taken: Sampler, *kept: int) -> None:
    """Leave these GPU instances on the split GPU, and no others."""
    there = taken.simulation.state.gpus[SPLIT.bus_id].instances
    left = tuple(one for one in there if one.id in kept)
    taken.simulation.edit(edits.with_gpu_changed(SPLIT.bus_id, instances=left))


def test_the_first_sample_tells_nothing_and_misses_nothing(taken: Sampler) -> None:
    sample = taken.sample(WHOLE.bus_id, ASKED)
    assert (sample.profiling, gaps(sample)) == ((), [])


def test_metrics_are_those_since_the_sample_before(taken: Sampler) -> None:
    """Not since the first one."""
    seen = []
    taken.sample(WHOLE.bus_id, ASKED)
    for percent in (80, 0):
        taken.simulation.add_process(WHOLE.bus_id, 71, percent=percent)
        seen.append(dict(taken.sample(WHOLE.bus_id, ASKED).profiling)[GRAPHICS])
        taken.simulation.remove_process(71)
    assert seen == pytest.approx([0.8, 0.0])


def test_traffic_is_in_bytes_each_second(taken: Sampler) -> None:
    taken.sample(WHOLE.bus_id, ASKED)
    taken.simulation.add_process(WHOLE.bus_id, 71, percent=100)
    sample = taken.sample(WHOLE.bus_id, ASKED)
    assert dict(sample.profiling)[PCIE_SENT] == pytest.approx(1.5e9, rel=1e-3)


def test_each_gpu_instance_has_metrics_of_its_own_without_traffic(taken: Sampler) -> None:
    taken.sample(SPLIT.bus_id, ASKED)
    ids = {"gpu_instance_id": 3, "compute_instance_id": 0}
    taken.simulation.add_process(SPLIT.bus_id, 71, percent=40, **ids)
    sample = taken.sample(SPLIT.bus_id, ASKED)
    found = {instance: dict(metrics) for instance, metrics in sample.mig_profiling}
    assert {instance: metrics[GRAPHICS] for instance, metrics in found.items()} == pytest.approx(
        {2: 0.0, 3: 0.4}
    )
    assert set(USUAL) - set(TRAFFIC) <= set(found[3])
    assert not set(found[3]) & set(TRAFFIC)


def test_an_instance_is_not_asked_for_traffic_so_it_lacks_none(taken: Sampler) -> None:
    groups = (ReadingGroup.PROFILING, ReadingGroup.PIPES, ReadingGroup.TOTALS)
    samples = [taken.sample(SPLIT.bus_id, groups) for _ in range(3)]
    assert [gap for sample in samples for gap in gaps(sample) if gap.what == "mig_profiling"] == []


@pytest.mark.parametrize(
    ("call", "what"), [("nvmlGpmSampleGet", "profiling"), ("nvmlGpmMigSampleGet", "mig_profiling")]
)
def test_gaps_of_the_gpu_and_of_its_instances_have_names_of_their_own(
    taken: Sampler, call: str, what: str
) -> None:
    taken.sample(SPLIT.bus_id, ASKED)
    taken.simulation.fault(Return(code=999), call)
    found = gaps(taken.sample(SPLIT.bus_id, ASKED))
    failed = [gap for gap in found if gap.reason is Reason.FAILED]
    assert {(gap.what, gap.source, gap.detail) for gap in failed} == {(what, call, "Unknown Error")}


def test_samples_too_near_to_each_other_tell_nothing_and_lose_nothing(taken: Sampler) -> None:
    taken.sample(WHOLE.bus_id, ASKED)
    taken.simulation.add_process(WHOLE.bus_id, 71, percent=60)
    near = taken.sample(WHOLE.bus_id, ASKED, after=0.06)
    later = taken.sample(WHOLE.bus_id, ASKED, after=0.06)
    assert near.profiling == ()
    assert dict(later.profiling)[GRAPHICS] == pytest.approx(0.6)


def test_a_sample_that_fails_costs_its_metrics_alone(taken: Sampler) -> None:
    """The next one counts from the last that went well."""
    taken.sample(WHOLE.bus_id, ASKED)
    taken.simulation.fault(Return(code=999), "nvmlGpmSampleGet")
    failed = taken.sample(WHOLE.bus_id, ASKED)
    taken.simulation.clear()
    again = taken.sample(WHOLE.bus_id, ASKED)
    assert (failed.profiling, [gap.reason for gap in gaps(failed)]) == ((), [Reason.FAILED])
    assert dict(again.profiling)[GRAPHICS] == 0.0


@pytest.mark.parametrize("garbage", ["nan", "max"])
def test_a_metric_that_is_no_number_is_a_gap(taken: Sampler, garbage: Any) -> None:
    taken.sample(WHOLE.bus_id, ASKED)
    taken.simulation.fault(Spoil(garbage=garbage), "nvmlGpmMetricsGet")
    sample = taken.sample(WHOLE.bus_id, ASKED)
    assert sample.profiling == ()
    assert {gap.source for gap in gaps(sample) if gap.reason is Reason.GARBAGE} >= {
        f"nvmlGpmMetricsGet({metric})" for metric in USUAL
    }


def test_only_the_metrics_of_the_groups_asked_for_are_read(taken: Sampler) -> None:
    for group, metrics in PROFILED.items():
        taken.sample(WHOLE.bus_id, (group,))
        found = dict(taken.sample(WHOLE.bus_id, (group,)).profiling)
        assert found, group
        assert set(found) <= set(metrics)


def test_metrics_that_a_gpu_lacks_are_one_gap_and_not_asked_again(taken: Sampler) -> None:
    """The small GPU has two links and no video decoders but two."""
    taken.sample(WHOLE.bus_id, ASKED)
    seen = [taken.sample(WHOLE.bus_id, ASKED) for _ in range(2)]
    assert [[gap.reason for gap in gaps(sample)] for sample in seen] == [[Reason.UNSUPPORTED]] * 2
    assert gaps(seen[1])[0].detail.startswith("it has no metric 32, 33,")


def test_a_driver_that_refuses_newer_metrics_still_tells_the_others(taken: Sampler) -> None:
    """They are asked together, by themselves, and not again."""
    taken.sample(WHOLE.bus_id, ASKED)
    refused = Return(code=nv.NVML_ERROR_INVALID_ARGUMENT)
    taken.simulation.fault(refused, "nvmlGpmMetricsGet", after=2, times=1)
    first = taken.sample(WHOLE.bus_id, ASKED)
    calls = taken.calls(lambda: taken.sample(WHOLE.bus_id, ASKED))
    later = (*PROFILED[ReadingGroup.CACHES], *PROFILED[ReadingGroup.TOTALS])
    assert {metric for metric, _ in first.profiling} == {*USUAL, *later}
    assert calls["nvmlGpmMetricsGet"] == 4


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("nvmlGpmQueryDeviceSupport", nv.NVML_ERROR_FUNCTION_NOT_FOUND),
        ("nvmlGpmSampleAlloc", nv.NVML_ERROR_NOT_SUPPORTED),
        ("nvmlGpmSampleGet", nv.NVML_ERROR_NOT_SUPPORTED),
    ],
)
def test_what_is_not_supported_is_asked_once_for_each_discovery(
    taken: Sampler, entry: str, code: int
) -> None:
    """Each sample says why it has no metrics."""
    taken.simulation.fault(Return(code=code), entry)
    samples: list[GpuSample] = []

    def tick() -> None:
        samples.append(taken.sample(WHOLE.bus_id, ASKED))

    first, second = taken.calls(tick), taken.calls(tick)
    taken.history.rediscovered({WHOLE.bus_id})
    third = taken.calls(tick)

    assert [calls[entry] for calls in (first, second, third)] == [1, 0, 1]
    assert [[gap.reason for gap in gaps(sample)] for sample in samples] == [
        [Reason.UNSUPPORTED]
    ] * 3


def test_a_gpu_before_hopper_is_asked_once_whether_it_has_metrics(tmp_path: Path) -> None:
    with small(tmp_path, profiling=False) as taken:
        ticks = [taken.calls(lambda: taken.sample(WHOLE.bus_id, ASKED)) for _ in range(2)]
        sample = taken.sample(WHOLE.bus_id, ASKED)

    told = [{name: n for name, n in calls.items() if "Gpm" in name} for calls in ticks]
    assert told == [{"nvmlGpmQueryDeviceSupport": 1}, {}]
    assert [gap.reason for gap in gaps(sample)] == [Reason.UNSUPPORTED]


def test_a_support_query_that_fails_is_made_again(taken: Sampler) -> None:
    taken.simulation.fault(Return(code=999), "nvmlGpmQueryDeviceSupport", times=1)
    seen = [taken.sample(WHOLE.bus_id, ASKED) for _ in range(3)]
    assert [bool(sample.profiling) for sample in seen] == [False, False, True]


# buffers


def buffers(taken: Sampler) -> int:
    """Those that are held by now; calls were logged from the first on."""
    return _made(taken, "nvmlGpmSampleAlloc") - _made(taken, "nvmlGpmSampleFree")


def _made(taken: Sampler, entry: str) -> int:
    calls = taken.simulation.calls()
    return sum(times for (name, _), times in calls.items() if name == entry)


def test_two_buffers_are_held_for_a_gpu_and_each_instance_however_long(taken: Sampler) -> None:
    taken.simulation.log_calls()
    for _ in range(5):
        taken.sample(WHOLE.bus_id, ASKED)
        taken.sample(SPLIT.bus_id, ASKED)
    assert buffers(taken) == 2 * 4


def test_all_buffers_are_given_back_at_the_end(taken: Sampler) -> None:
    taken.simulation.log_calls()
    for _ in range(3):
        taken.sample(SPLIT.bus_id, ASKED)
    taken.history.close()
    assert (buffers(taken), _made(taken, "nvmlGpmSampleFree")) == (0, 6)


def test_buffers_of_an_instance_that_is_gone_are_given_back(taken: Sampler) -> None:
    taken.simulation.log_calls()
    for _ in range(2):
        taken.sample(SPLIT.bus_id, ASKED)
    instances(taken, 3)
    sample = taken.sample(SPLIT.bus_id, ASKED)
    assert [instance for instance, _ in sample.mig_profiling] == [3]
    assert buffers(taken) == 2 * 2


def test_buffers_of_a_gpu_that_is_gone_are_given_back_with_the_next_discovery(
    taken: Sampler,
) -> None:
    taken.simulation.log_calls()
    for gpu in (WHOLE, SPLIT, WHOLE, SPLIT):
        taken.sample(gpu.bus_id, ASKED)
    taken.history.rediscovered({WHOLE.bus_id})
    assert buffers(taken) == 2


def test_a_gpu_goes_on_through_a_discovery(taken: Sampler) -> None:
    taken.sample(WHOLE.bus_id, ASKED)
    taken.history.rediscovered({WHOLE.bus_id})
    assert taken.sample(WHOLE.bus_id, ASKED).profiling


def test_an_instance_without_a_compute_instance_is_not_asked(taken: Sampler) -> None:
    """The driver has no data of it."""
    there = taken.simulation.state.gpus[SPLIT.bus_id].instances
    bare = tuple(replace(one, compute=()) if one.id == 2 else one for one in there)
    taken.simulation.edit(edits.with_gpu_changed(SPLIT.bus_id, instances=bare))
    taken.sample(SPLIT.bus_id, ASKED)
    sample = taken.sample(SPLIT.bus_id, ASKED)
    assert [instance for instance, _ in sample.mig_profiling] == [3]
    assert {gap.reason for gap in gaps(sample)} == {Reason.UNSUPPORTED}


def test_a_gpu_that_has_no_metrics_keeps_no_other_from_its_own(taken: Sampler) -> None:
    unsupported = Return(code=nv.NVML_ERROR_NOT_SUPPORTED)
    taken.simulation.fault(unsupported, "nvmlGpmQueryDeviceSupport", bus_id=SPLIT.bus_id)
    for _ in range(2):
        without, others = (taken.sample(gpu.bus_id, ASKED) for gpu in (SPLIT, WHOLE))
    assert (without.profiling, [gap.reason for gap in gaps(without)]) == ((), [Reason.UNSUPPORTED])
    assert GRAPHICS in dict(others.profiling)
