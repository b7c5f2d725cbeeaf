# SPDX-License-Identifier: Apache-2.0
"""A GPU's MIG state is read in full or not at all: no instance that is there is overlooked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pynvml
import pytest
from msgspec.structs import replace

from discovery.bus_id import bus_order
from discovery.driver_errors import DriverAbsent, DriverMismatch
from discovery.mig_state import ComputeProfile, MigGpu, MigProfile, MigReading, UnreadMigGpu
from discovery.model import Mode, Reason
from discovery.nvml.mig_gpu import PLACED_CREATE, read_mig_gpu
from discovery.nvml.session import close_session, open_session
from simulator.description.machine_catalog import load_machine, load_models, machine_names
from simulator.description.machine_schema import MigInstanceSpec, Model
from simulator.simulation import Return, Simulation, Spoil
from simulator.state import edits, mig_geometry
from simulator.state.machine_state import ComputeInstance, GpuInstance
from tests import machines
from tests.conftest import SCALE
from tests.discovery.nvml.error_codes import CODES

NOT_THERE = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED,
)
"""How NVML says that a GPU has not what was asked for."""

SESSION = {"nvmlInitWithFlags", "nvmlShutdown", "nvmlSystemGetDriverVersion"}
HANDLES = {
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlGpuInstanceGetComputeInstanceById",
}
"""Their answers are opaque: no caller could see through a senseless one."""
COMPUTE_PLACES = "nvmlGpuInstanceGetComputeInstancePossiblePlacements"
"""Without its answer the driver chooses the places of compute instances."""
ENTRIES = sorted(
    HANDLES
    | {
        "nvmlComputeInstanceGetInfo_v2",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        "nvmlDeviceGetGpuInstanceProfileInfo",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetGpuInstanceRemainingCapacity",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetIndex",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetName",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetVirtualizationMode",
        COMPUTE_PLACES,
        "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
        "nvmlGpuInstanceGetInfo",
    }
)
"""What is called for one GPU; :func:`test_no_entry_point_is_missing_here` keeps it complete."""
HARMLESS = {"nvmlDeviceGetFieldValues", "nvmlDeviceGetArchitecture"}
"""What they say decides on ``resetless`` alone, and that is False where it is not known."""

CUT = machines.gpu(
    0,
    mig=True,
    instances=(
        MigInstanceSpec(profile="3g.20gb", start=4, id=2, compute=(1, 1)),
        MigInstanceSpec(profile="1g.5gb", start=1, id=8),
    ),
)
UNUSED = GpuInstance(id=7, profile="1g.5gb", start=0)
"""A GPU instance without a compute instance."""
BUSY = {"gpu_instance_id": 2, "compute_instance_id": 1}


class Bench:
    """One GPU that is divided in all ways, with programs on it, in this process."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.bus_id = CUT.bus_id
        there = simulation.state.gpus[CUT.bus_id].instances
        simulation.edit(edits.with_gpu_changed(CUT.bus_id, instances=(*there, UNUSED)))
        simulation.add_process(CUT.bus_id, 4242, **BUSY)
        simulation.add_process(CUT.bus_id, 99, kind="graphics", gpu_instance_id=8)
        self.before = whole(self.read())

    def read(self) -> MigReading:
        return read_mig_gpu(self.bus_id)


def whole(gpu: MigReading) -> MigGpu:
    assert isinstance(gpu, MigGpu), gpu
    return gpu


def unread(gpu: MigReading) -> UnreadMigGpu:
    assert isinstance(gpu, UnreadMigGpu), gpu
    return gpu


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with machines.simulation(tmp_path, CUT) as simulation:
        open_session()
        yield Bench(simulation)
        close_session()


# what is read


def test_instances_come_with_their_compute_instances_and_without(bench: Bench) -> None:
    gpu = bench.before
    found = {
        one.id: (one.profile, one.start, one.size, [(it.id, it.slices) for it in one.compute])
        for one in gpu.instances
    }
    assert found == {
        2: ("3g.20gb", 4, 4, [(0, 1), (1, 1)]),
        7: ("1g.5gb", 0, 1, []),
        8: ("1g.5gb", 1, 1, [(0, 1)]),
    }
    assert [one.id for one in gpu.instances] == [2, 7, 8]


def test_a_device_has_the_uuid_that_programs_are_given(bench: Bench) -> None:
    uuids = {(gi.id, ci.id): ci.uuid for gi, ci in bench.before.devices()}
    assert uuids == {
        at: mig_geometry.mig_device_uuid(bench.before.uuid, *at) for at in ((2, 0), (2, 1), (8, 0))
    }


def test_programs_are_held_against_the_instance_that_they_use(bench: Bench) -> None:
    three, unused, one = bench.before.instances
    assert [bench.before.pids_on(it) for it in (three, unused, one)] == [[4242], [], [99]]
    assert [bench.before.pids_on(three, it) for it in three.compute] == [[], [4242]]


def test_a_profile_has_all_that_placing_it_takes(bench: Bench) -> None:
    profile = bench.before.profile("3g.20gb")
    assert profile is not None
    assert (profile.number, profile.id, profile.slices, profile.max_instances) == (2, 9, 3, 2)
    assert (profile.size, profile.starts, profile.fitting) == (4, (0, 4), 0)
    assert (profile.memory_bytes >> 20, profile.multiprocessors) == (19968, 42)
    assert profile.engines.decoders == 2
    assert profile.compute == (
        ComputeProfile(slices=1, id=0, starts=(0, 1, 2)),
        ComputeProfile(slices=2, id=1, starts=(0,)),
        ComputeProfile(slices=3, id=2, starts=(0,)),
    )


MIG_MACHINES = [
    name
    for name in machine_names()
    if any(load_models()[gpu.model].mig for gpu in load_machine(name).gpus)
]


@pytest.mark.parametrize("name", machine_names())
def test_on_every_machine_what_is_read_is_what_is_there(name: str, tmp_path: Path) -> None:
    simulation = Simulation.create(name, tmp_path)
    if simulation.state.driver == "absent" or simulation.state.machine is None:
        pytest.skip("no driver answers")
    with simulation:
        open_session()
        gpus = [whole(read_mig_gpu(bus_id)) for bus_id in machines.bus_ids_by_index()]
        close_session()

    state = simulation.state
    assert state.machine is not None
    assert [gpu.bus_id for gpu in gpus] == sorted(state.gpus, key=bus_order)
    models = {gpu.bus_id: state.models[gpu.model] for gpu in state.machine.gpus}
    for index, gpu in enumerate(gpus):
        model, there = models[gpu.bus_id], state.gpus[gpu.bus_id]
        assert (gpu.index, gpu.model) == (index, model.name)
        assert gpu.minor is not None
        assert (gpu.device_id, gpu.subsystem_id) == (model.device_id, model.subsystem_id)
        if not model.mig:
            assert (gpu.mode, gpu.profiles, gpu.instances) == (None, (), ())
            continue
        assert gpu.mode == Mode(current=there.mig, pending=there.mig_pending)
        assert gpu.resetless is not model.reset_for_mig
        assert {one.id for one in gpu.instances} == {one.id for one in there.instances}
        if there.mig or not model.reset_for_mig:
            assert rows(gpu) == tables(model)
        else:
            assert gpu.profiles == ()


def rows(gpu: MigGpu) -> list[tuple[object, ...]]:
    return [
        (one.number, one.id, one.name, one.slices, one.max_instances, one.size, one.starts)
        for one in gpu.profiles
    ]


def tables(model: Model) -> list[tuple[object, ...]]:
    return sorted(
        (one.enum, one.id, one.name, one.slices, one.max, one.size, one.starts) for one in model.mig
    )


@pytest.mark.parametrize("name", MIG_MACHINES)
def test_a_driver_that_names_no_profiles_has_them_named_the_same(name: str, tmp_path: Path) -> None:
    """Every profile of every model, with attributes and halves of gigabytes."""
    simulation = Simulation.create(name, tmp_path)
    for bus_id in simulation.state.gpus:
        simulation.edit(edits.with_gpu_changed(bus_id, mig=True, mig_pending=True))
    with simulation:
        open_session()
        named = [read_mig_gpu(bus_id) for bus_id in machines.bus_ids_by_index()]
        simulation.fault(Return(code=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), "nvml*ProfileInfoV")
        computed = [read_mig_gpu(bus_id) for bus_id in machines.bus_ids_by_index()]
        close_session()
    assert any(isinstance(gpu, MigGpu) and gpu.profiles for gpu in named)
    assert computed == named


# modes


@pytest.mark.parametrize(("now", "after"), [(True, False), (False, True)])
def test_a_mode_that_waits_for_a_reset_is_both(bench: Bench, now: bool, after: bool) -> None:
    bench.simulation.edit(edits.with_gpu_changed(bench.bus_id, mig=now, mig_pending=after))
    gpu = whole(bench.read())
    assert gpu.mode == Mode(current=now, pending=after)
    assert len(gpu.instances) == (3 if now else 0)


def test_profiles_that_are_told_with_mig_on_only_are_none_with_it_off(bench: Bench) -> None:
    bench.simulation.edit(
        edits.with_gpu_changed(bench.bus_id, mig=False, mig_pending=False, instances=())
    )
    gpu = whole(bench.read())
    assert (gpu.profiles, gpu.instances) == ((), ())


@pytest.mark.parametrize(("architecture", "resetless"), [(7, False), (9, True), (10, True)])
def test_without_the_field_the_architecture_says_whether_a_reset_is_needed(
    tmp_path: Path, architecture: int, resetless: bool
) -> None:
    model = machines.model(architecture=architecture, reset_for_mig=not resetless)
    with machines.simulation(tmp_path, machines.gpu(), models={"small": model}) as simulation:
        open_session()
        told = whole(read_mig_gpu(CUT.bus_id))
        simulation.fault(Return(code=pynvml.NVML_ERROR_NOT_SUPPORTED), "nvmlDeviceGetFieldValues")
        guessed = whole(read_mig_gpu(CUT.bus_id))
        close_session()
    assert (told.resetless, guessed.resetless) == (resetless, resetless)


# what cannot be read


def same(gpu: MigGpu, before: MigGpu) -> dict[str, Any]:
    """Fields that are not as they were; how many more fit is for people."""
    now, then = (
        dataclasses.replace(
            it, profiles=tuple(dataclasses.replace(one, fitting=None) for one in it.profiles)
        )
        for it in (gpu, before)
    )
    return {
        field.name: getattr(now, field.name)
        for field in dataclasses.fields(MigGpu)
        if getattr(now, field.name) != getattr(then, field.name)
    }


def check(gpu: MigReading, before: MigGpu, entry: str, code: object) -> None:
    """All of it, or the reason why not; a GPU without MIG only where the driver says so."""
    if isinstance(gpu, UnreadMigGpu):
        assert gpu.gaps, (entry, code)
        assert all(gap.detail and gap.source for gap in gpu.gaps)
        return
    differing = same(gpu, before)
    if entry == "nvmlDeviceGetMigMode" and code in NOT_THERE:
        assert gpu.mode is None
        return
    if entry in HARMLESS:
        differing.pop("resetless", None)
    if entry == COMPUTE_PLACES and without_places(gpu) == without_places(before):
        differing.pop("profiles", None)
    if entry == "nvmlDeviceGetMinorNumber" and gpu.minor is None:
        differing.pop("minor", None)
    if entry == "nvmlDeviceGetVirtualizationMode" and gpu.virtualization is None:
        differing.pop("virtualization", None)
    if "Graphics" in entry and code in NOT_THERE:
        differing.pop("processes", None)
    assert not differing, (entry, code, differing)


def without_places(gpu: MigGpu) -> list[MigProfile]:
    """The profiles, but for where their compute instances may start."""
    return [
        dataclasses.replace(
            one, compute=tuple(dataclasses.replace(each, starts=()) for each in one.compute)
        )
        for one in gpu.profiles
    ]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_error_code_makes_the_gpu_unread_or_costs_nothing(bench: Bench, entry: str) -> None:
    for code in CODES:
        bench.simulation.fault(Return(code=code), entry, bus_id=bench.bus_id)
        check(bench.read(), bench.before, entry, code)
        bench.simulation.clear()


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_call_that_fails_once_hides_no_instance_and_no_program(bench: Bench, entry: str) -> None:
    """Whichever of the many calls it is: the profile that it was about may be missing at most.

    In a plain run each of the calls has one of the codes in turn.
    """
    codes = (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_FOUND,
    )
    bench.simulation.log_calls()
    bench.read()
    times = sum(n for (name, _), n in bench.simulation.calls().items() if name == entry)
    bench.simulation.log_calls(False)
    for after in range(times):
        for code in codes if SCALE > 1 else codes[after % 3 :][:1]:
            bench.simulation.fault(
                Return(code=code), entry, bus_id=bench.bus_id, after=after, times=1
            )
            gpu = bench.read()
            bench.simulation.clear()
            if isinstance(gpu, MigGpu) and gpu.mode is not None:
                shown = {field: getattr(gpu, field) for field in ("instances", "processes")}
                then = {field: getattr(bench.before, field) for field in shown}
                if "Graphics" in entry or "MPS" in entry:
                    shown.pop("processes"), then.pop("processes")
                assert shown == then, (code, after)
                assert {it.name for it in gpu.profiles} <= {it.name for it in bench.before.profiles}


def test_a_compute_profile_that_is_not_described_hides_no_compute_instance(bench: Bench) -> None:
    """Refused in both versions of its struct, whichever profile of whichever instance it is; in a
    plain run every third."""
    entry = "nvmlGpuInstanceGetComputeInstanceProfileInfo*"
    missing = Return(code=pynvml.NVML_ERROR_NOT_SUPPORTED)
    bench.simulation.log_calls()
    bench.read()
    asked = sum(n for (name, _), n in bench.simulation.calls().items() if fnmatch(name, entry))
    bench.simulation.log_calls(False)
    found: list[MigReading] = []
    for after in range(0, asked, 1 if SCALE > 1 else 3):
        bench.simulation.fault(missing, entry, bus_id=bench.bus_id, after=after, times=2)
        found.append(bench.read())
        bench.simulation.clear()

    read = [gpu for gpu in found if isinstance(gpu, MigGpu)]
    assert {gpu.instances for gpu in read} == {bench.before.instances}
    details = {unread(gpu).gaps[0].detail for gpu in found if gpu not in read}
    assert "instance 0 is there, and of no profile that the driver describes" in details


@pytest.mark.parametrize("garbage", ["max", "nan", "not-utf8", "unterminated"])
@pytest.mark.parametrize("entry", sorted(set(ENTRIES) - HANDLES))
def test_a_senseless_answer_is_never_taken_for_a_layout(
    bench: Bench, entry: str, garbage: Any
) -> None:
    bench.simulation.fault(Spoil(garbage=garbage), entry, bus_id=bench.bus_id)
    check(bench.read(), bench.before, entry, garbage)


def test_no_entry_point_is_missing_here(bench: Bench) -> None:
    bench.simulation.log_calls()
    bench.read()
    missing = Return(code=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    for entry in ("nvml*ProfileInfoV", "nvmlDeviceGetFieldValues"):
        bench.simulation.fault(missing, entry)
    bench.read()
    assert {entry for entry, _ in bench.simulation.calls()} - SESSION == set(ENTRIES)


def test_whether_the_driver_takes_places_is_known_without_a_call(tmp_path: Path) -> None:
    """The call itself would make an instance."""
    simulation = machines.simulation(tmp_path, CUT)
    found = []
    for missing in ((), (PLACED_CREATE,)):
        simulation.lack(*missing)
        with simulation:
            open_session()
            found.append(whole(read_mig_gpu(CUT.bus_id)))
            close_session()
    assert [one.places for one in found] == [True, False]
    assert found[1] == dataclasses.replace(found[0], places=False)


def test_without_the_right_to_monitor_nothing_is_known_and_the_fix_is_named(bench: Bench) -> None:
    bench.simulation.revoke("mig-monitor")
    gpu = unread(bench.read())
    assert (gpu.index, gpu.uuid, gpu.model) == (0, bench.before.uuid, bench.before.model)
    assert gpu.mode == Mode(current=True, pending=True)
    assert {gap.reason for gap in gpu.gaps} == {Reason.FORBIDDEN}
    assert "NVIDIA_MIG_MONITOR_DEVICES=all" in gpu.gaps[0].detail


def test_a_lost_gpu_is_unread_and_lost(bench: Bench) -> None:
    bench.simulation.fault(
        Return(code=pynvml.NVML_ERROR_GPU_IS_LOST), "nvmlGpuInstanceGetInfo", bus_id=bench.bus_id
    )
    gpu = unread(bench.read())
    assert [gap.reason for gap in gpu.gaps] == [Reason.LOST]
    assert gpu.uuid == bench.before.uuid  # read before it was lost


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_UNINITIALIZED, DriverAbsent),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, DriverMismatch),
    ],
)
def test_a_session_that_is_gone_altogether_is_an_error(
    bench: Bench, code: int, error: type[Exception]
) -> None:
    bench.simulation.fault(Return(code=code))
    with pytest.raises(error):
        bench.read()


def test_mig_on_without_any_profile_is_not_taken_for_an_empty_gpu(bench: Bench) -> None:
    bench.simulation.fault(
        Return(code=pynvml.NVML_ERROR_NOT_SUPPORTED), "nvmlDeviceGetGpuInstanceProfileInfo*"
    )
    assert "describes no profile" in unread(bench.read()).gaps[0].detail


def test_a_driver_that_refuses_every_profile_number_does_not_only_wait_for_mig(
    tmp_path: Path,
) -> None:
    """With MIG off no profiles are an answer too, but not this one: number 0 is in every NVML."""
    model = machines.model(reset_for_mig=False)
    with machines.simulation(tmp_path, machines.gpu(), models={"small": model}) as simulation:
        open_session()
        assert whole(read_mig_gpu(CUT.bus_id)).profiles
        simulation.fault(
            Return(code=pynvml.NVML_ERROR_INVALID_ARGUMENT), "nvmlDeviceGetGpuInstanceProfileInfo*"
        )
        gap = unread(read_mig_gpu(CUT.bus_id)).gaps[0]
        close_session()
    assert (gap.what, gap.reason) == ("profiles", Reason.FAILED)


def test_instances_that_overlap_are_no_layout(bench: Bench) -> None:
    there = bench.simulation.state.gpus[bench.bus_id].instances
    over = GpuInstance(id=9, profile="1g.5gb", start=5)
    bench.simulation.edit(edits.with_gpu_changed(bench.bus_id, instances=(*there, over)))
    gap = unread(bench.read()).gaps[0]
    assert (gap.reason, gap.detail) == (Reason.GARBAGE, "two GPU instances in memory unit 5")


# profiles that are not known here

NEW = replace(machines.ONE, enum=20, id=77, name="1g.5gb+new", starts=(6,))


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A driver that has a profile with a number above all that are known."""
    monkeypatch.setattr(pynvml, "NVML_GPU_INSTANCE_PROFILE_COUNT", 24)
    model = machines.model(mig=(machines.ONE, machines.THREE, NEW))
    with machines.simulation(tmp_path, CUT, models={"small": model}) as simulation:
        open_session()
        yield Bench(simulation)
        close_session()


NO_NAMES = Return(code=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
INSTANCE = GpuInstance(
    id=13, profile=NEW.name, start=6, compute=(ComputeInstance(id=0, slices=1, start=0),)
)


def test_an_unknown_profile_has_the_drivers_name(newer: Bench) -> None:
    assert newer.before.profile("1g.5gb+new") is not None


def test_an_unknown_profile_without_a_name_is_left_out(newer: Bench) -> None:
    newer.simulation.fault(NO_NAMES, "nvmlDeviceGetGpuInstanceProfileInfoV")
    assert [one.name for one in whole(newer.read()).profiles] == ["1g.5gb", "3g.20gb"]


def test_an_instance_of_an_unknown_profile_without_a_name_makes_the_gpu_unread(
    newer: Bench,
) -> None:
    there = newer.simulation.state.gpus[newer.bus_id].instances[:1]
    newer.simulation.edit(edits.with_gpu_changed(newer.bus_id, instances=(*there[1:], INSTANCE)))
    assert whole(newer.read()).instances[0].profile == "1g.5gb+new"
    newer.simulation.fault(NO_NAMES, "nvmlDeviceGetGpuInstanceProfileInfoV")
    gap = unread(newer.read()).gaps[0]
    assert gap.detail == "instance 13 is there, and of no profile that the driver describes"


def test_more_instances_than_the_driver_counts_are_all_read(tmp_path: Path) -> None:
    """As on an A30, whose driver reports too small a count."""
    model = machines.model(mig=(replace(machines.ONE, max=1),))
    with machines.simulation(
        tmp_path, machines.gpu(mig=True), models={"small": model}
    ) as simulation:
        three = tuple(GpuInstance(id=7 + at, profile="1g.5gb", start=at) for at in range(3))
        simulation.edit(edits.with_gpu_changed(CUT.bus_id, instances=three))
        open_session()
        gpu = whole(read_mig_gpu(CUT.bus_id))
        close_session()
    assert [one.start for one in gpu.instances] == [0, 1, 2]
