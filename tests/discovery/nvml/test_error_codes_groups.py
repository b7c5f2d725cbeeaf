# SPDX-License-Identifier: Apache-2.0
"""Every NVML error code on every entry point of the groups costs its readings, and no more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pynvml
import pytest
from msgspec.structs import replace

from base.errors import Transient
from discovery.sample import GpuSample
from simulator.description.machine_catalog import load_machine
from simulator.simulation import Return, Simulation, Spoil
from simulator.state.machine_state import Action
from tests.discovery.nvml.error_codes import some_codes
from tests.discovery.sampling import Sampler, leaves, sampler

ENTRIES = (
    "nvmlDeviceGetApplicationsClock",
    "nvmlDeviceGetAutoBoostedClocksEnabled",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCpuAffinity",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetInforomConfigurationChecksum",
    "nvmlDeviceGetInforomImageVersion",
    "nvmlDeviceGetInforomVersion",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetNvLinkErrorCounter",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetP2PStatus",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPlatformInfo",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlGpmMetricsGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlSystemGetConfComputeState",
)
"""What is called for the groups; :func:`test_no_entry_point_is_missing_here` keeps it complete."""

ALWAYS = {
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetGridLicensableFeatures_v4",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetUtilizationRates",
}
"""Called without groups too; they are put through the same beside this."""

SILENT = {"nvmlDeviceGetProcessUtilization": {pynvml.NVML_ERROR_NOT_FOUND}}
"""What is no gap: the driver says that it has nothing new."""

SENSIBLE = {("nvmlDeviceGetCpuAffinity", "max"), ("nvmlDeviceGetMemoryAffinity", "max")}
"""Bits of which all may be set: 64 CPUs near a GPU are a word of ones."""

VARYING = (
    *("power_watts", "instant_power_watts", "energy_joules", "gpu_celsius", "memory_celsius"),
    "held_down.power",
    *("nvlink_received_bytes", "nvlink_sent_bytes", "links.", "pcie.sent", "pcie.received"),
    *("profiling.", "mig_profiling.", "temperature_limits.margin"),
)
"""Readings that differ from one sample to the next."""


class Bench:
    """A whole GPU and one with MIG devices, both busy, of which two samples were taken."""

    def __init__(self, taken: Sampler) -> None:
        self.taken = taken
        self.whole, self.split = taken.simulation.state.gpus
        instance = taken.simulation.state.gpus[self.split].instances[0].id
        ids = {"gpu_instance_id": instance, "compute_instance_id": 0}
        taken.simulation.add_process(self.whole, 71, percent=50)
        taken.simulation.add_process(self.split, 72, percent=20, **ids)
        self.before = {at: self.twice(at) for at in (self.whole, self.split)}

    def twice(self, at: str) -> GpuSample:
        """The second sample after a discovery: all that spans two is in it."""
        self.taken.history.rediscovered({self.whole, self.split})
        self.taken.sample(at)
        return self.taken.sample(at)

    def harmed(self, action: Action, entry: str, at: str) -> GpuSample:
        """A sample of a GPU on which a call goes wrong, as the second after a discovery."""
        both = {self.whole, self.split}
        self.taken.history.rediscovered(both)
        for each in both:
            self.taken.sample(each)
        if entry == "nvmlGpmSampleAlloc":
            self.taken.history.profiler.rediscovered(both - {at})
        self.taken.history.rediscovered(both)
        of_a_gpu = entry not in ("nvmlGpmSampleAlloc", "nvmlGpmSampleFree")
        self.taken.simulation.fault(action, entry, bus_id=at if of_a_gpu else None)
        sample = self.taken.sample(at)
        self.taken.simulation.clear()
        return sample

    def told_less(self, now: GpuSample, at: str) -> set[str]:
        """Fields of which a part is missing; nothing else differs from what it was."""
        before, there = leaves(self.before[at]), leaves(now)
        added = set(there) - set(before)
        other = {path for path in there if not path.startswith(VARYING)}
        changed = {path for path in other & set(before) if there[path] != before[path]}
        assert not added
        assert not changed
        return {path.partition(".")[0] for path in set(before) - set(there)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    machine = load_machine("hgx-h100-mig-mixed")
    two = replace(machine, gpus=machine.gpus[5:7])
    directory = tmp_path_factory.mktemp("machine")
    with sampler(lambda: Simulation.create(two, directory)) as taken:
        yield Bench(taken)


@pytest.fixture(autouse=True)
def _healthy(bench: Bench) -> Iterator[None]:
    yield
    bench.taken.simulation.clear()


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_error_code_costs_its_readings_alone_and_leaves_a_reason(
    bench: Bench, entry: str
) -> None:
    for code in some_codes(ENTRIES.index(entry)):
        for sick, well in ((bench.whole, bench.split), (bench.split, bench.whole)):
            sample = bench.harmed(Return(code=code), entry, sick)
            unharmed = bench.taken.sample(well)

            told = {gap.what.partition(".")[0] for gap in sample.gaps}
            told |= {"mig_profiling"} if "profiling" in told else set()  # of a GPU altogether
            told |= {"processes"} if code in SILENT.get(entry, ()) else set()
            assert "state" in told or bench.told_less(sample, sick) <= told, code
            assert not bench.told_less(unharmed, well), code


@pytest.mark.parametrize(
    ("entry", "garbage"),
    [
        (entry, garbage)
        for entry in ENTRIES
        for garbage in ("max", "nan", "not-utf8", "unterminated")
        if (entry, garbage) not in SENSIBLE
    ],
)
def test_a_senseless_answer_is_a_gap_and_never_a_value(
    bench: Bench, entry: str, garbage: Any
) -> None:
    for sick in (bench.whole, bench.split):
        sample = bench.harmed(Spoil(garbage=garbage), entry, sick)

        bench.told_less(sample, sick)
        for path, value in leaves(sample).items():
            assert value not in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, math.inf), path
            assert value == value, path  # nan is not


def test_no_entry_point_is_missing_here(bench: Bench) -> None:
    used = set(bench.taken.calls(lambda: [bench.twice(at) for at in (bench.whole, bench.split)]))
    used |= set(bench.taken.calls(bench.taken.history.close))
    assert used <= {*ENTRIES, *ALWAYS}


def test_a_session_that_is_gone_altogether_is_told_as_such(bench: Bench) -> None:
    bench.taken.simulation.fault(Return(code=pynvml.NVML_ERROR_UNINITIALIZED), "nvmlDeviceGetFan*")
    bench.taken.simulation.fault(Return(code=pynvml.NVML_ERROR_UNINITIALIZED), "nvmlSystem*")
    with pytest.raises(Transient):
        bench.taken.sample(bench.whole)
