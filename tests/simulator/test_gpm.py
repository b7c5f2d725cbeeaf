# SPDX-License-Identifier: Apache-2.0
"""GPM on simulated machines: buffers have owners and ends, metrics come from two of one GPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest
from msgspec.structs import replace

from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return
from simulator.state import edits
from tests import machines
from tests.discovery.sampling import Sampler, small

INVALID, UNSUPPORTED = nv.NVML_ERROR_INVALID_ARGUMENT, nv.NVML_ERROR_NOT_SUPPORTED
THREE = MigInstanceSpec(profile="3g.20gb", start=0, id=1)
ONE = MigInstanceSpec(profile="1g.5gb", start=4, id=5)
FIRST, SECOND = machines.gpu(0), machines.gpu(1)
SPLIT = machines.gpu(2, mig=True, instances=(THREE, ONE))
GRAPHICS = 1


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path, FIRST, SECOND, SPLIT) as taken:
        yield taken


def filled(
    taken: Sampler, at: int = 0, *, seconds: float = 10.0, instance: int | None = None
) -> Any:
    """A new sample, so many seconds later."""
    taken.wait(seconds)
    device, sample = nv.nvmlDeviceGetHandleByIndex(at), nv.nvmlGpmSampleAlloc()
    if instance is None:
        return nv.nvmlGpmSampleGet(device, sample)
    return nv.nvmlGpmMigSampleGet(device, instance, sample)


def question(older: Any, newer: Any, *metrics: int, version: int = 1) -> Any:
    asked = nv.c_nvmlGpmMetricsGet_t(version=version, numMetrics=len(metrics))
    asked.sample1, asked.sample2 = older, newer
    for place, metric in enumerate(metrics):
        asked.metrics[place].metricId = metric
    return asked


def answers(older: Any, newer: Any, *metrics: int) -> list[tuple[int, float]]:
    """Return code and value of each metric."""
    asked = nv.nvmlGpmMetricsGet(question(older, newer, *metrics))
    return [(one.nvmlReturn, one.value) for one in asked.metrics[: len(metrics)]]


def refusal(older: Any, newer: Any, **how: Any) -> int:
    return machines.code_of(lambda: nv.nvmlGpmMetricsGet(question(older, newer, GRAPHICS, **how)))


def test_metrics_are_what_happened_between_the_samples(taken: Sampler) -> None:
    older = filled(taken)
    taken.simulation.add_process(FIRST.bus_id, 71, percent=80)
    newer = filled(taken)
    ((code, value),) = answers(older, newer, GRAPHICS)
    assert code == 0
    assert value == pytest.approx(80)


def test_a_metric_the_gpu_lacks_is_refused_by_itself(taken: Sampler) -> None:
    """Ids that nobody knows too."""
    told = answers(filled(taken), filled(taken), GRAPHICS, 31, 32, 90, 470)
    assert [code for code, _ in told] == [0, 0, UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]


def test_samples_of_two_gpus_do_not_go_together(taken: Sampler) -> None:
    """Nor those of a GPU and its instance, or of two instances."""
    first, other = filled(taken), filled(taken, 1)
    whole, one, two = filled(taken, 2), *(filled(taken, 2, instance=at) for at in (1, 5))
    assert [refusal(*pair) for pair in ((first, other), (whole, one), (one, two))] == [INVALID] * 3


def test_an_empty_sample_and_none_at_all_are_refused(taken: Sampler) -> None:
    full, empty = filled(taken), nv.nvmlGpmSampleAlloc()
    assert [refusal(*pair) for pair in ((empty, full), (full, empty), (full, None))] == [
        INVALID
    ] * 3


def test_a_sample_that_was_freed_is_gone(taken: Sampler) -> None:
    """It cannot be read, filled or freed again."""
    older, newer = filled(taken), filled(taken)
    nv.nvmlGpmSampleFree(older)
    device = nv.nvmlDeviceGetHandleByIndex(0)
    codes = [
        refusal(older, newer),
        machines.code_of(lambda: nv.nvmlGpmSampleGet(device, older)),
        machines.code_of(lambda: nv.nvmlGpmSampleFree(older)),
    ]
    assert codes == [INVALID] * 3


def test_what_is_no_sample_is_refused(taken: Sampler) -> None:
    """A device's handle in its place, a version that is none, too many metrics."""
    device, full = nv.nvmlDeviceGetHandleByIndex(0), filled(taken)
    greedy = question(full, full)
    greedy.numMetrics = nv.NVML_GPM_METRIC_MAX + 1
    codes = [
        machines.code_of(lambda: nv.nvmlGpmSampleGet(device, device)),
        refusal(full, full, version=2),
        machines.code_of(lambda: nv.nvmlGpmMetricsGet(greedy)),
    ]
    assert codes == [INVALID, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, INVALID]


def test_samples_too_near_to_each_other_give_no_number(taken: Sampler) -> None:
    older = filled(taken)
    ((code, value),) = answers(older, filled(taken, seconds=0.05), GRAPHICS)
    assert code == 0
    assert math.isnan(value)


def test_an_instance_counts_its_own_processes_against_its_own_size(taken: Sampler) -> None:
    """What is a tenth of the GPU is all of an instance, up to what there is of it."""
    before = [filled(taken, 2, instance=at) for at in (1, 5)]
    ids = {"gpu_instance_id": 5, "compute_instance_id": 0}
    taken.simulation.add_process(SPLIT.bus_id, 71, percent=10, **ids)
    taken.wait(10)
    after = [filled(taken, 2, instance=at, seconds=0) for at in (1, 5)]
    values = [answers(*pair, GRAPHICS)[0][1] for pair in zip(before, after, strict=True)]
    assert values == pytest.approx([0, 30])


def test_instances_that_are_not_there_or_have_no_data_are_refused(taken: Sampler) -> None:
    there = taken.simulation.state.gpus[SPLIT.bus_id].instances
    bare = tuple(replace(one, compute=()) if one.id == 5 else one for one in there)
    taken.simulation.edit(edits.with_gpu_changed(SPLIT.bus_id, instances=bare))
    whole, split = (nv.nvmlDeviceGetHandleByIndex(at) for at in (0, 2))
    sample = nv.nvmlGpmSampleAlloc()
    codes = [
        machines.code_of(partial(nv.nvmlGpmMigSampleGet, device, instance, sample))
        for device, instance in ((whole, 1), (split, 9), (split, 5))
    ]
    assert codes == [UNSUPPORTED, INVALID, nv.NVML_ERROR_NO_DATA]


def test_models_without_gpm_say_so(tmp_path: Path) -> None:
    with small(tmp_path, profiling=False):
        device, sample = nv.nvmlDeviceGetHandleByIndex(0), nv.nvmlGpmSampleAlloc()
        supported = nv.nvmlGpmQueryDeviceSupport(device).isSupportedDevice
        code = machines.code_of(lambda: nv.nvmlGpmSampleGet(device, sample))
    assert (supported, code) == (0, UNSUPPORTED)


def test_a_fault_on_a_gpu_meets_its_samples_too(taken: Sampler) -> None:
    """A lost GPU answers for none of them."""
    mine, others = (filled(taken), filled(taken)), (filled(taken, 1), filled(taken, 1))
    taken.simulation.fault(Return(code=nv.NVML_ERROR_GPU_IS_LOST), bus_id=FIRST.bus_id)
    assert refusal(*mine) == nv.NVML_ERROR_GPU_IS_LOST
    assert refusal(*others) == 0


def test_counters_only_grow_and_end_nowhere_with_a_process(taken: Sampler) -> None:
    """PCIe, every link and what held clocks down, before, with and after a process."""
    device = nv.nvmlDeviceGetHandleByIndex(0)
    fields = [74, 197, 198, *((field, link) for field in (138, 139) for link in (0, 1))]

    def counted() -> list[int]:
        taken.wait(10)
        return [one.value.ullVal for one in nv.nvmlDeviceGetFieldValues(device, fields)]

    seen = [counted()]
    taken.simulation.add_process(FIRST.bus_id, 71, percent=70)
    seen += [counted(), counted()]
    taken.simulation.remove_process(71)
    seen += [counted(), counted()]
    for earlier, later in itertools.pairwise(seen):
        assert all(a <= b for a, b in zip(earlier, later, strict=True))
    assert all(a < b for a, b in zip(seen[1], seen[2], strict=True))
    assert seen[3][0] == seen[4][0]


def test_links_carry_in_all_what_each_of_them_carries(taken: Sampler) -> None:
    taken.simulation.add_process(FIRST.bus_id, 71, percent=70)
    taken.wait(10)
    device = nv.nvmlDeviceGetHandleByIndex(0)
    total, *each = (
        one.value.ullVal
        for one in nv.nvmlDeviceGetFieldValues(device, [(138, 0xFFFFFFFF), (138, 0), (138, 1)])
    )
    assert total == pytest.approx(sum(each), abs=2)
    assert each[0] < each[1]
