# SPDX-License-Identifier: Apache-2.0
"""MIG layouts read through NVML as NVIDIA documents them."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref, c_uint
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import Gpu, MigInstanceSpec
from simulator.simulation import Simulation
from simulator.state.edits import with_gpu_changed
from tests import machines

MIB = 1 << 20
A100 = "a100-sxm4-40gb"

MIXED = (
    MigInstanceSpec(profile="3g.20gb", start=4, id=2, compute=(1, 2)),
    MigInstanceSpec(profile="2g.10gb", start=0, id=3),
    MigInstanceSpec(profile="1g.5gb+me", start=3, id=10),
)


def a100(*instances: MigInstanceSpec, at: int = 0, mig: bool = True) -> Gpu:
    return machines.gpu(at, model=A100, mig=mig, instances=instances)


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Any]:
    """An A100 with 3g (cut in 1c and 2c), 2g and 1g+me; gives its handle."""
    simulation = machines.simulation(tmp_path, a100(*MIXED), models=load_models())
    with machines.session(simulation) as handle:
        yield handle(0)


def mig_devices(gpu: Any) -> list[Any]:
    """Handles of a GPU's MIG devices, as everybody lists them: holes are skipped."""
    found = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nv.NVMLError_NotFound:
            continue
    return found


def test_mig_devices_are_listed_by_instance(mixed: Any) -> None:
    """In the order of GPU instance and compute instance ids."""
    ids = [
        (nv.nvmlDeviceGetGpuInstanceId(one), nv.nvmlDeviceGetComputeInstanceId(one))
        for one in mig_devices(mixed)
    ]

    assert ids == [(2, 0), (2, 1), (3, 0), (10, 0)]


def test_a_mig_device_is_named_after_its_profile(mixed: Any) -> None:
    """Compute slices show only where they differ from the GPU instance's."""
    names = [nv.nvmlDeviceGetName(one) for one in mig_devices(mixed)]

    model = "NVIDIA A100-SXM4-40GB MIG "
    assert names == [
        model + profile for profile in ("1c.3g.20gb", "2c.3g.20gb", "2g.10gb", "1g.5gb+me")
    ]


def test_attributes_are_those_of_the_profile_table(mixed: Any) -> None:
    """Multiprocessors by compute slices, engines and memory of the GPU instance."""
    attributes = [nv.nvmlDeviceGetAttributes_v2(one) for one in mig_devices(mixed)]

    assert [
        (
            one.multiprocessorCount,
            one.gpuInstanceSliceCount,
            one.computeInstanceSliceCount,
            one.memorySizeMB,
            one.sharedCopyEngineCount,
            one.sharedDecoderCount,
            one.sharedJpegCount,
            one.sharedOfaCount,
        )
        for one in attributes
    ] == [
        (14, 3, 1, 19968, 3, 2, 0, 0),
        (28, 3, 2, 19968, 3, 2, 0, 0),
        (28, 2, 2, 9856, 2, 1, 0, 0),
        (14, 1, 1, 4864, 1, 1, 1, 1),
    ]


def test_a_mig_device_is_found_by_its_uuid_and_leads_to_its_gpu(mixed: Any) -> None:
    """The UUID is its own and starts with MIG-."""
    devices = mig_devices(mixed)
    uuids = [nv.nvmlDeviceGetUUID(one) for one in devices]

    found = nv.nvmlDeviceGetHandleByUUID(uuids[1])
    parent = nv.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)

    assert nv.nvmlDeviceGetComputeInstanceId(found) == 1
    assert nv.nvmlDeviceGetUUID(parent) == nv.nvmlDeviceGetUUID(mixed)
    assert len(set(uuids)) == 4
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    flags = [nv.nvmlDeviceIsMigDeviceHandle(one).value for one in (found, parent)]
    assert flags == [1, 0]


def test_memory_of_a_mig_device_is_its_instances_own(tmp_path: Path) -> None:
    """A process on one instance uses no memory of another, and all of it is the GPU's."""
    simulation = machines.simulation(tmp_path, a100(*MIXED), models=load_models())
    simulation.add_process(
        machines.gpu(0).bus_id, 71, memory_mib=700, gpu_instance_id=2, compute_instance_id=1
    )

    with machines.session(simulation) as handle:
        gpu = handle(0)
        uses = [
            nv.nvmlDeviceGetMemoryInfo(one, nv.nvmlMemory_v2).used // MIB
            for one in (*mig_devices(gpu), gpu)
        ]
        processes = [
            [process.pid for process in nv.nvmlDeviceGetComputeRunningProcesses(one)]
            for one in (*mig_devices(gpu), gpu)
        ]

    assert uses == [700, 700, 0, 0, 700]
    assert processes == [[], [71], [], [], [71]]


@pytest.mark.parametrize(
    "call",
    [
        nv.nvmlDeviceGetUtilizationRates,
        nv.nvmlDeviceGetEncoderUtilization,
        nv.nvmlDeviceGetDecoderUtilization,
        lambda gpu: nv.nvmlDeviceGetPcieThroughput(gpu, 0),
    ],
)
def test_a_split_gpu_tells_no_utilisation(mixed: Any, call: Any) -> None:
    """As hardware does not, while temperature and power are told as ever."""
    assert machines.code_of(lambda: call(mixed)) == nv.NVML_ERROR_NOT_SUPPORTED
    assert nv.nvmlDeviceGetPowerUsage(mixed) > 0


def test_a_mig_device_has_no_sensors(mixed: Any) -> None:
    """They are the GPU's."""
    (one, *_) = mig_devices(mixed)

    codes = [
        machines.code_of(lambda: nv.nvmlDeviceGetTemperature(one, 0)),
        machines.code_of(lambda: nv.nvmlDeviceGetPowerUsage(one)),
        machines.code_of(lambda: nv.nvmlDeviceGetMigMode(one)),
    ]

    assert codes == [nv.NVML_ERROR_NOT_SUPPORTED] * 3


def test_the_profiles_of_an_a100_are_its_table(mixed: Any) -> None:
    """Index, id, slices and greatest count; indices in between that it lacks are skipped."""
    rows = {}
    for enum in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nv.nvmlDeviceGetGpuInstanceProfileInfo(mixed, enum)
        except nv.NVMLError_NotSupported:
            continue
        rows[info.name] = (enum, info.id, info.sliceCount, info.instanceCount, info.memorySizeMB)
    past = machines.code_of(
        lambda: nv.nvmlDeviceGetGpuInstanceProfileInfo(mixed, nv.NVML_GPU_INSTANCE_PROFILE_COUNT)
    )

    assert rows == {
        "MIG 1g.5gb": (0, 19, 1, 7, 4864),
        "MIG 1g.5gb+me": (7, 20, 1, 1, 4864),
        "MIG 1g.10gb": (9, 15, 1, 4, 9856),
        "MIG 2g.10gb": (1, 14, 2, 3, 9856),
        "MIG 3g.20gb": (2, 9, 3, 2, 19968),
        "MIG 4g.20gb": (3, 5, 4, 1, 19968),
        "MIG 7g.40gb": (4, 0, 7, 1, 40192),
    }
    assert past == nv.NVML_ERROR_INVALID_ARGUMENT


def test_both_versions_of_a_profile_say_the_same(mixed: Any) -> None:
    """The older struct has no name and no version."""
    new = nv.nvmlDeviceGetGpuInstanceProfileInfo(mixed, 2)
    old = nv.nvmlDeviceGetGpuInstanceProfileInfo(mixed, 2, version=1)
    by_id = nv.nvmlDeviceGetGpuInstanceProfileInfoById(mixed, new.id)

    names = [name for name, _ in old._fields_]
    assert {n: getattr(old, n) for n in names} == {n: getattr(new, n) for n in names}
    assert bytes(by_id) == bytes(new)


def test_placements_are_asked_for_by_count_first(mixed: Any) -> None:
    """The starts of the A100's 2g family in memory units."""
    count = c_uint()
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(mixed, 14, None, byref(count))
    places = (nv.c_nvmlGpuInstancePlacement_t * count.value)()
    nv.nvmlDeviceGetGpuInstancePossiblePlacements(mixed, 14, places, byref(count))

    assert [(one.start, one.size) for one in places] == [(0, 2), (2, 2), (4, 2)]


def test_capacity_is_what_fits_beside_the_instances_there(mixed: Any) -> None:
    """Units 0, 1, 3 and 4 to 7 are taken: one unit is left, and the one +me is used up."""
    left = {
        profile: nv.nvmlDeviceGetGpuInstanceRemainingCapacity(mixed, profile)
        for profile in (19, 20, 15, 14, 9, 5, 0)
    }

    assert left == {19: 1, 20: 0, 15: 0, 14: 0, 9: 0, 5: 0, 0: 0}


def test_capacity_of_an_empty_gpu_is_each_profiles_greatest_count(tmp_path: Path) -> None:
    """Instances of one kind alone."""
    simulation = machines.simulation(tmp_path, a100(), models=load_models())

    with machines.session(simulation) as handle:
        left = [
            nv.nvmlDeviceGetGpuInstanceRemainingCapacity(handle(0), profile)
            for profile in (19, 20, 15, 14, 9, 5, 0)
        ]

    assert left == [7, 1, 4, 3, 2, 1, 1]


def test_instances_lead_from_gpu_to_mig_device(mixed: Any) -> None:
    """GPU instances of a profile, compute instances in them, the MIG device of each."""
    count = c_uint()
    gpu_instances = (nv.c_nvmlGpuInstance_t * 2)()
    nv.nvmlDeviceGetGpuInstances(mixed, 9, gpu_instances, byref(count))
    info = nv.nvmlGpuInstanceGetInfo(gpu_instances[0])
    computes = (nv.c_nvmlComputeInstance_t * 3)()
    profile = nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(gpu_instances[0], 1, 0)
    nv.nvmlGpuInstanceGetComputeInstances(gpu_instances[0], profile.id, computes, byref(count))
    compute = nv.nvmlComputeInstanceGetInfo(computes[0])

    assert (info.id, info.profileId, info.placement.start, info.placement.size) == (2, 9, 4, 4)
    assert (profile.name, profile.multiprocessorCount) == ("MIG 2c.3g.20gb", 28)
    assert (count.value, compute.id, compute.placement.start, compute.placement.size) == (
        1,
        1,
        1,
        2,
    )
    assert nv.nvmlDeviceGetName(compute.device).endswith("2c.3g.20gb")
    assert nv.nvmlGpuInstanceGetInfo(compute.gpuInstance).id == 2


def test_compute_capacity_is_what_fits_beside_the_instances_there(mixed: Any) -> None:
    """The 3g is full; the 2g is one compute instance; a profile that is too large is refused."""
    three = nv.nvmlDeviceGetGpuInstanceById(mixed, 2)

    left = [nv.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(three, enum) for enum in (0, 1)]
    too_large = machines.code_of(
        lambda: nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(three, 4, 0)
    )

    assert (left, too_large) == ([0, 0], nv.NVML_ERROR_NOT_SUPPORTED)


def test_a_gpu_in_one_piece_has_no_mig_devices(tmp_path: Path) -> None:
    """MIG off: mode 0, no devices, and on Ampere no profiles either."""
    simulation = machines.simulation(tmp_path, a100(mig=False), models=load_models())

    with machines.session(simulation) as handle:
        gpu = handle(0)
        mode = nv.nvmlDeviceGetMigMode(gpu)
        most = nv.nvmlDeviceGetMaxMigDeviceCount(gpu)
        device = machines.code_of(lambda: nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))
        profile = machines.code_of(lambda: nv.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0))

    assert (mode, most) == ([0, 0], 0)
    assert (device, profile) == (nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_NOT_SUPPORTED)


def test_later_gpus_tell_their_profiles_with_mig_off(tmp_path: Path) -> None:
    """Field 199 says that they do."""
    resetless = machines.model(reset_for_mig=False)
    simulation = machines.simulation(tmp_path, machines.gpu(0), models={"small": resetless})

    with machines.session(simulation) as handle:
        name = nv.nvmlDeviceGetGpuInstanceProfileInfo(handle(0), 0).name
        fields = nv.nvmlDeviceGetFieldValues(handle(0), [199, 184])

    assert name == "MIG 1g.5gb"
    assert [one.value.uiVal for one in fields] == [1, 1]


def test_handles_of_instances_that_are_gone_are_refused(tmp_path: Path) -> None:
    """A MIG device goes with its instances."""
    simulation = machines.simulation(tmp_path, a100(*MIXED), models=load_models())

    with machines.session(simulation) as handle:
        device = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0)
        instance = nv.nvmlDeviceGetGpuInstanceById(handle(0), 2)
        simulation.edit(with_gpu_changed(machines.gpu(0).bus_id, instances=()))
        codes = (
            machines.code_of(lambda: nv.nvmlDeviceGetName(device)),
            machines.code_of(lambda: nv.nvmlGpuInstanceGetInfo(instance)),
        )

    assert codes == (nv.NVML_ERROR_INVALID_ARGUMENT, nv.NVML_ERROR_INVALID_ARGUMENT)


@pytest.mark.parametrize(
    ("machine", "devices", "profiles"),
    [
        ("dgx-a100-mig-single", 56, {"1g.5gb"}),
        (
            "dgx-a100-mig-mixed",
            10,
            {"3g.20gb", "2g.10gb", "1g.5gb", "7g.40gb", "1c.4g.20gb", "2c.4g.20gb", "1g.5gb+me"},
        ),
    ],
)
def test_laid_out_machines_have_their_mig_devices(
    tmp_path: Path, machine: str, devices: int, profiles: set[str]
) -> None:
    """The machines that come with gpuscape, with one layout on all GPUs and with many."""
    with machines.session(Simulation.create(machine, tmp_path)) as handle:
        gpus = [handle(at) for at in range(nv.nvmlDeviceGetCount())]
        names = [nv.nvmlDeviceGetName(device) for gpu in gpus for device in mig_devices(gpu)]

    assert len(names) == devices
    assert {name.rpartition(" ")[2] for name in names} == profiles
