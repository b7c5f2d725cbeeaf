# SPDX-License-Identifier: Apache-2.0
"""MIG layouts made and taken away through NVML, and all that hardware refuses."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pynvml as nv
import pytest

from discovery.nvml_abi.mig_profile_structs import (
    ComputeInstanceProfileInfoV3,
    GpuInstanceProfileInfoV3,
    version,
)
from simulator.simulation import Simulation
from tests import machines
from tests.simulator.mig.conftest import Machine
from tests.simulator.mig.mig_calls import code_of, create, cut, devices, layout

GPU = machines.gpu(0).bus_id
ONE, TWO, THREE, FOUR, SEVEN, DOUBLE, MEDIA = 19, 14, 9, 5, 0, 15, 20
"""Ids of the profiles of a GPU of seven slices."""
INVALID_ARGUMENT = nv.NVML_ERROR_INVALID_ARGUMENT
INSUFFICIENT = nv.NVML_ERROR_INSUFFICIENT_RESOURCES
IN_USE = nv.NVML_ERROR_IN_USE
NOT_SUPPORTED = nv.NVML_ERROR_NOT_SUPPORTED
NO_PERMISSION = nv.NVML_ERROR_NO_PERMISSION
FULL = {ONE: 0, TWO: 1, THREE: 2, FOUR: 3}
"""Profile of the compute instance that takes all."""


# lifetimes


def test_an_instance_is_made_seen_and_taken_away(machine: Machine) -> None:
    """A MIG device is there from its compute instance's creation to its end."""
    with machines.session(machine(mig=True)) as handle:
        gpu = handle(0)
        instance = create(gpu, THREE)
        before = devices(gpu)
        compute = cut(instance, FULL[THREE])
        (device,) = devices(gpu)
        info = nv.nvmlComputeInstanceGetInfo(compute)
        name, attributes = nv.nvmlDeviceGetName(device), nv.nvmlDeviceGetAttributes_v2(device)
        there = layout(gpu)

        nv.nvmlComputeInstanceDestroy(compute)
        without_compute = layout(gpu)
        nv.nvmlGpuInstanceDestroy(instance)

        assert before == []
        assert (info.id, info.profileId, info.placement.start, info.placement.size) == (0, 2, 0, 3)
        assert name == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
        assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (42, 19968)
        assert there == without_compute == [(THREE, 2, 4, 4)]
        assert (layout(gpu), devices(gpu)) == ([], [])


def test_handles_of_what_was_destroyed_stay_invalid(machine: Machine) -> None:
    """Also when another instance has the place and the id; it has the UUID as well."""
    with machines.session(machine(mig=True)) as handle:
        gpu = handle(0)
        instance = create(gpu, TWO, 2, 2)
        compute = cut(instance, FULL[TWO])
        (device,) = devices(gpu)
        uuid = nv.nvmlDeviceGetUUID(device)
        nv.nvmlComputeInstanceDestroy(compute)
        nv.nvmlGpuInstanceDestroy(instance)

        again = create(gpu, TWO, 2, 2)
        cut(again, FULL[TWO])
        (new,) = devices(gpu)

        assert [
            code_of(nv.nvmlGpuInstanceGetInfo, instance),
            code_of(nv.nvmlGpuInstanceDestroy, instance),
            code_of(cut, instance, FULL[TWO]),
            code_of(nv.nvmlComputeInstanceGetInfo, compute),
            code_of(nv.nvmlComputeInstanceDestroy, compute),
            code_of(nv.nvmlDeviceGetUUID, device),
            code_of(nv.nvmlDeviceGetAttributes_v2, device),
        ] == [INVALID_ARGUMENT] * 7
        assert nv.nvmlDeviceGetUUID(new) == uuid
        assert nv.nvmlGpuInstanceGetInfo(again).id == 4


def test_compute_instances_of_one_gpu_instance_share_it(machine: Machine) -> None:
    """Ids count up from 0 and are used again; each is a MIG device with its own UUID."""
    with machines.session(machine(mig=True)) as handle:
        gpu = handle(0)
        instance = create(gpu, FOUR)
        one, two, three = cut(instance, 0), cut(instance, 0), cut(instance, 1)
        names = [nv.nvmlDeviceGetName(device).rpartition(" ")[2] for device in devices(gpu)]
        full = code_of(cut, instance, 0)
        nv.nvmlComputeInstanceDestroy(one)
        uuids = [nv.nvmlDeviceGetUUID(device) for device in devices(gpu)]
        again = cut(instance, 0)

        places = [
            (info.id, info.placement.start, info.placement.size)
            for info in map(nv.nvmlComputeInstanceGetInfo, (again, two, three))
        ]
        assert names == ["1c.4g.20gb", "1c.4g.20gb", "2c.4g.20gb"]
        assert full == INSUFFICIENT
        assert places == [(0, 0, 1), (1, 1, 1), (2, 2, 2)]
        assert len(set(uuids)) == 2
        assert [nv.nvmlDeviceGetUUID(device) for device in devices(gpu)][1:] == uuids


def test_an_instance_that_is_kept_stays_as_it_is_while_others_come_and_go(machine: Machine) -> None:
    """Its handles work throughout, which is what a running program relies on."""
    with machines.session(machine(mig=True)) as handle:
        gpu = handle(0)
        kept = create(gpu, THREE, 0, 4)
        cut(kept, FULL[THREE])
        (device,) = devices(gpu)
        uuid = nv.nvmlDeviceGetUUID(device)

        for _ in range(3):
            other = create(gpu, TWO)
            compute = cut(other, FULL[TWO])
            assert nv.nvmlDeviceGetUUID(device) == uuid
            nv.nvmlComputeInstanceDestroy(compute)
            nv.nvmlGpuInstanceDestroy(other)

        assert nv.nvmlDeviceGetUUID(device) == uuid
        assert layout(gpu) == [(THREE, 1, 0, 4)]


# refusals


def test_what_has_no_room_is_refused(machine: Machine) -> None:
    """A taken place, no place left, no engine left, no more of a profile."""
    with machines.session(machine(mig=True)) as handle:
        gpu = handle(0)
        create(gpu, MEDIA, 0, 1)
        create(gpu, TWO, 4, 2)

        refused = {
            "taken": code_of(create, gpu, ONE, 0, 1),
            "overlaps": code_of(create, gpu, THREE, 4, 4),
            "no place": code_of(create, gpu, SEVEN),
            "one is the most": code_of(create, gpu, MEDIA),
        }

        assert refused == dict.fromkeys(refused, INSUFFICIENT)
        assert layout(gpu) == [(TWO, 5, 4, 2), (MEDIA, 7, 0, 1)]


def test_engines_can_run_out_before_places_do(machine: Machine) -> None:
    """On an RTX PRO 6000 one instance may take all media engines; others must have none."""
    with_all, without, usual = 65, 67, 14
    with machines.session(machine("rtx-pro-6000", mig=True)) as handle:
        gpu = handle(0)
        create(gpu, with_all)
        left = nv.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, usual)

        assert (left, code_of(create, gpu, usual)) == (0, INSUFFICIENT)
        assert code_of(create, gpu, without) == 0


def test_what_there_is_not_is_refused(machine: Machine) -> None:
    """Profiles and places that the GPU or the instance does not have, and a MIG device's handle."""
    with machines.session(machine(mig=True)) as handle:
        gpu = handle(0)
        four = create(gpu, FOUR)
        cut(four, 1)
        (device,) = devices(gpu)

        assert code_of(create, gpu, 77) == INVALID_ARGUMENT
        assert code_of(create, gpu, TWO, 1, 2) == INVALID_ARGUMENT
        assert code_of(create, gpu, TWO, 4, 3) == INVALID_ARGUMENT
        assert code_of(cut, four, 2) == NOT_SUPPORTED  # three of four slices
        assert code_of(cut, four, 4) == NOT_SUPPORTED
        assert code_of(cut, four, 77) == INVALID_ARGUMENT
        assert code_of(cut, four, 1, 1, 2) == INVALID_ARGUMENT
        assert code_of(create, device, ONE) == NOT_SUPPORTED
        place = nv.nvmlDeviceCreateGpuInstanceWithPlacement
        assert code_of(place, gpu, ONE, None) == INVALID_ARGUMENT


def test_without_mig_there_are_no_instances(machine: Machine) -> None:
    """On any model; one that waits for its reset has none yet either."""
    simulation = machine()
    simulation.set_resets(mode_change="reset-required")
    with machines.session(simulation) as handle:
        off = code_of(create, handle(0), ONE)
        nv.nvmlDeviceSetMigMode(handle(0), nv.NVML_DEVICE_MIG_ENABLE)
        pending = code_of(create, handle(0), ONE)

    assert (off, pending) == (NOT_SUPPORTED, NOT_SUPPORTED)


@pytest.mark.parametrize("right", ["mig-config", "root"])
def test_without_the_right_nothing_is_changed(machine: Machine, right: str) -> None:
    """Instances take NVIDIA's capability mig/config, the mode takes root; reading takes neither."""
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        gpu = handle(0)
        instance = create(gpu, TWO)
        compute = cut(instance, 0)
        simulation.revoke(right)  # type: ignore[arg-type]  # parametrised
        before = simulation.state.gpus

        codes = [
            code_of(create, gpu, ONE),
            code_of(create, gpu, ONE, 0),
            code_of(cut, instance, 0),
            code_of(cut, instance, 0, 1),
            code_of(nv.nvmlComputeInstanceDestroy, compute),
        ]
        mode = code_of(nv.nvmlDeviceSetMigMode, gpu, nv.NVML_DEVICE_MIG_DISABLE)
        last = code_of(nv.nvmlGpuInstanceDestroy, instance)

        if right == "root":
            assert (codes, mode) == ([0, 0, 0, INSUFFICIENT, 0], NO_PERMISSION)
        else:
            assert (codes, mode, last) == ([NO_PERMISSION] * 5, 0, NO_PERMISSION)
            assert simulation.state.gpus[GPU].instances == before[GPU].instances
        assert [one[:1] for one in layout(gpu)[:1]] == [(TWO,)]


# what else is seen


def test_capability_files_come_and_go_with_the_instances(machine: Machine) -> None:
    """Device nodes do not come by themselves; their numbers are published for all there can be."""
    simulation = machine(mig=True, count=2)
    root: Path = simulation.host_root
    files = root / "proc/driver/nvidia/capabilities/gpu1/mig"
    with machines.session(simulation) as handle:
        instance = create(handle(1), THREE)
        compute = cut(instance, 2)
        there = sorted(str(one.relative_to(files)) for one in files.rglob("access"))
        text = (files / "gi2/ci0/access").read_text("utf-8")
        nodes = sorted(one.name for one in (root / "dev/nvidia-caps").iterdir())
        simulation.make_device_nodes()
        nv.nvmlComputeInstanceDestroy(compute)
        without_compute = sorted(str(one.relative_to(files)) for one in files.rglob("access"))
        nv.nvmlGpuInstanceDestroy(instance)

    minors = (root / "proc/driver/nvidia-caps/mig-minors").read_text("utf-8").splitlines()
    assert there == ["gi2/access", "gi2/ci0/access"]
    assert without_compute == ["gi2/access"]
    assert list(files.rglob("access")) == []
    assert nodes == ["nvidia-cap1", "nvidia-cap2"]
    assert "gpu1/gi2/ci0/access 157" in minors
    assert text.startswith("DeviceFileMinor: 157\n")
    assert (root / "dev/nvidia-caps/nvidia-cap157").exists()
    assert "gpu0/gi7/access 66" in minors  # the example of the MIG user guide


def test_version_three_of_a_profile_says_whether_it_has_graphics(machine: Machine) -> None:
    """pynvml has no struct of it, C programs do."""
    with machines.session(machine("rtx-pro-6000", mig=True)) as handle:
        gpu = handle(0)
        ask = nv._nvmlGetFunctionPointer("nvmlDeviceGetGpuInstanceProfileInfoV")
        found = {}
        for enum in (0, 10):
            info = GpuInstanceProfileInfoV3(version=version(GpuInstanceProfileInfoV3))
            assert ask(gpu, enum, ctypes.byref(info)) == 0
            found[info.name] = (info.id, info.instanceCount, info.capabilities)
        instance = create(gpu, 47)
        ask = nv._nvmlGetFunctionPointer("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
        compute = ComputeInstanceProfileInfoV3(version=version(ComputeInstanceProfileInfoV3))
        code = ask(instance, 0, 0, ctypes.byref(compute))

    assert found == {b"MIG 1g.24gb": (14, 4, 0), b"MIG 1g.24gb+gfx": (47, 4, 2)}
    assert (code, compute.name, compute.capabilities) == (0, b"MIG 1g.24gb+gfx", 1)


def test_a_state_file_of_a_machine_with_instances_is_opened_again(machine: Machine) -> None:
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        cut(create(handle(0), THREE), 2)
        uuid = nv.nvmlDeviceGetUUID(devices(handle(0))[0])

    with machines.session(Simulation.open(simulation.state_file)) as handle:
        assert nv.nvmlDeviceGetUUID(devices(handle(0))[0]) == uuid
