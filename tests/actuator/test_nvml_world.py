# SPDX-License-Identifier: Apache-2.0
"""The world of a change through NVML: what it sees on a simulated node, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml as nv
import pytest
from msgspec.structs import replace

from actuator.change import apply
from actuator.journal import Journal
from actuator.mig_world import StepFailed
from actuator.nvml_world import NvmlWorld
from api.mig_outcome import Outcome
from discovery.model import Mode
from mig.gpu_layout import GpuLayout, layout_from_counts
from mig.steps import CreateInstance, DestroyCompute, DestroyInstance, MigStep, SetMode
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Hang, Return
from simulator.state.machine_state import MachineState
from tests import machines
from tests.actuator.simulated_node import FIVE, H100, SimulatedNode, node
from tests.controlplane.lifetime import end_with_parent
from tests.discovery.host.test_device_files import PODS_CGROUP, process
from tests.kubelet_nodes.checkpoint_file import write_checkpoint
from tests.simulator.mig.mig_calls import create, cut

BUS_ID = machines.gpu(0).bus_id
THREE_BY_ONE = MigInstanceSpec(profile="3g.20gb", start=4, id=2, compute=(1, 2))


@contextmanager
def world_of(on: SimulatedNode, named: DeviceUsers | None = None) -> Iterator[NvmlWorld]:
    """The world of this process, with all GPUs observed."""
    with on.simulation, NvmlWorld(on.start, named) as world:
        world.observe()
        yield world


@contextmanager
def opener(*files: Path, program: str = "sleep") -> Iterator[subprocess.Popen[bytes]]:
    """A process that has files open and does nothing."""
    opened = [file.open("rb") for file in files]
    process = subprocess.Popen(
        [program, "600"],
        pass_fds=[one.fileno() for one in opened],
        preexec_fn=end_with_parent(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for one in opened:
            one.close()


def refusal(world: NvmlWorld, step: object) -> StepFailed:
    """Why a step fails."""
    with pytest.raises(StepFailed) as caught:
        world.perform(step)  # type: ignore[arg-type]  # a step
    return caught.value


def test_each_boot_and_each_load_of_the_driver_has_a_name_of_its_own(tmp_path: Path) -> None:
    """A session begun anew is the same load."""
    on = node(tmp_path, *FIVE)

    def load() -> str:
        with world_of(on) as world:
            world.reopen()
            return world.driver_load()

    first, again = load(), load()
    on.simulation.reload_driver()
    second = load()
    on.simulation.reboot()
    third = load()

    assert first == again
    assert len({first, second, third}) == 3


# modes


def test_a_mode_that_the_driver_does_not_put_into_effect_is_no_success(tmp_path: Path) -> None:
    """The call succeeds, and its activation status says why it waits: for a program, which may
    end. It is taken back at once, so that no reset or boot brings it, and the program is named."""
    on = node(tmp_path, model=H100, mig=False)
    on.simulation.add_process(BUS_ID, 71)
    with world_of(on) as world:
        busy = refusal(world, SetMode(gpu=on_uuid(world), on=True))
        after = mode(world)

    assert busy.passes
    assert "activation" in str(busy)
    assert "held by process 71" in str(busy)
    assert after == Mode(current=False, pending=False)


def test_a_mode_that_waits_is_cancelled_by_the_one_that_holds(tmp_path: Path) -> None:
    """Somebody else has asked for it."""
    on = node(tmp_path, model=H100, mig=False)
    on.simulation.edit(waiting)
    with world_of(on) as world:
        pending = mode(world)
        world.perform(SetMode(gpu=on_uuid(world), on=False))
        cancelled = mode(world)

    assert pending == Mode(current=False, pending=True)
    assert cancelled == Mode(current=False, pending=False)


def waiting(state: MachineState) -> MachineState:
    """The state with a mode that waits on each GPU."""
    gpus = {bus_id: replace(gpu, mig_pending=not gpu.mig) for bus_id, gpu in state.gpus.items()}
    return replace(state, gpus=gpus)


def test_a_reset_is_said_to_be_needed(tmp_path: Path) -> None:
    """And never waited for."""
    on = node(tmp_path, mig=False)
    on.simulation.set_resets(mode_change="reset-required")
    with world_of(on) as world:
        needed = refusal(world, SetMode(gpu=on_uuid(world), on=True))

    assert not needed.passes
    assert f"GPU {BUS_ID}: nvmlDeviceSetMigMode" in str(needed)
    assert "reset" in str(needed)


def test_a_mode_that_is_not_shown_afterwards_is_no_success(tmp_path: Path) -> None:
    """Whatever the driver says: here it does nothing, with success."""
    on = node(tmp_path, model=H100, mig=False)
    on.simulation.fault(Return(code=0), "nvmlDeviceSetMigMode")
    with world_of(on) as world:
        assert "the mode is" in str(refusal(world, SetMode(gpu=on_uuid(world), on=True)))


def on_uuid(world: NvmlWorld) -> str:
    """Of the only GPU."""
    return world.observe()[0].uuid


def mode(world: NvmlWorld) -> Mode | None:
    """Of the only GPU."""
    return world.observe()[0].mode


# identity


def test_another_instance_with_the_same_id_is_not_destroyed(tmp_path: Path) -> None:
    """Ids follow from the place: since the state was read, somebody put another profile there."""
    on = node(tmp_path, *FIVE)
    with world_of(on) as world:
        uuid = on_uuid(world)
        handle = nv.nvmlDeviceGetHandleByPciBusId(BUS_ID.encode())
        instance = nv.nvmlDeviceGetGpuInstanceById(handle, 7)
        nv.nvmlComputeInstanceDestroy(nv.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
        nv.nvmlGpuInstanceDestroy(instance)
        cut(create(handle, 20, 0), 0)
        other = on.found()

        failures = [
            refusal(world, DestroyCompute(gpu=uuid, instance=7, compute=0)),
            refusal(world, DestroyInstance(gpu=uuid, instance=7, profile="1g.5gb", start=0)),
        ]

    assert on.found() == other
    assert all("somebody else" in str(one) and not one.passes for one in failures)


def test_another_compute_instance_with_the_same_id_is_not_destroyed(tmp_path: Path) -> None:
    """Nor one of other slices, which has the same UUID: it follows from the ids."""
    on = node(tmp_path, THREE_BY_ONE)
    with world_of(on) as world:
        uuid = on_uuid(world)
        handle = nv.nvmlDeviceGetHandleByPciBusId(BUS_ID.encode())
        instance = nv.nvmlDeviceGetGpuInstanceById(handle, 2)
        for number in (0, 1):
            nv.nvmlComputeInstanceDestroy(
                nv.nvmlGpuInstanceGetComputeInstanceById(instance, number)
            )
        cut(instance, 1)
        other = on.found()

        why = refusal(world, DestroyCompute(gpu=uuid, instance=2, compute=0))

    assert on.found() == other
    assert "somebody else" in str(why)


# errors


@pytest.mark.parametrize(
    ("code", "passes", "fix"),
    [
        (nv.NVML_ERROR_IN_USE, True, "end the programs"),
        (nv.NVML_ERROR_NO_PERMISSION, False, "NVIDIA_MIG_CONFIG_DEVICES"),
        (nv.NVML_ERROR_INSUFFICIENT_RESOURCES, False, "the place is taken"),
        (nv.NVML_ERROR_FUNCTION_NOT_FOUND, False, "upgrade"),
        (nv.NVML_ERROR_GPU_IS_LOST, False, "reset"),
        (nv.NVML_ERROR_UNKNOWN, False, "Unknown"),
    ],
)
def test_an_error_names_call_gpu_and_what_to_do(
    tmp_path: Path, code: int, passes: bool, fix: str
) -> None:
    """And whether waiting may help."""
    on = node(tmp_path)
    call = "nvmlDeviceCreateGpuInstanceWithPlacement"
    on.simulation.fault(Return(code=code), call)
    with world_of(on) as world:
        step = CreateInstance(gpu=on_uuid(world), profile="1g.5gb", start=0, size=1)
        why = refusal(world, step)

    assert why.passes is passes
    assert str(why).startswith(f"GPU {BUS_ID}: {call}: ")
    assert fix in str(why)


@pytest.mark.parametrize(
    ("call", "step"),
    [
        (
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            lambda uuid: CreateInstance(gpu=uuid, profile="1g.5gb", start=0, size=1),
        ),
        (
            "nvmlComputeInstanceDestroy",
            lambda uuid: DestroyCompute(gpu=uuid, instance=2, compute=1),
        ),
    ],
)
def test_success_without_effect_is_a_failure(tmp_path: Path, call: str, step: object) -> None:
    """What was made is read back, and what was destroyed is looked for."""
    on = node(tmp_path, THREE_BY_ONE)
    on.simulation.fault(Return(code=0), call)
    with world_of(on) as world:
        refusal(world, step(on_uuid(world)))  # type: ignore[operator]  # makes a step


def test_a_gpu_that_cannot_be_read_is_left_out_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are there; nothing can be done to it."""
    on = node(tmp_path, *FIVE, count=2)
    on.simulation.fault(Return(code=15), bus_id=BUS_ID)
    with on.simulation, NvmlWorld(on.start) as world:
        first, second = world.observe(), world.observe()
        why = refusal(world, SetMode(gpu="GPU-of-it", on=True))

    assert [gpu.bus_id for gpu in first] == [machines.gpu(1).bus_id]
    assert first == second
    assert caplog.messages.count("MIG GPU not read") == 1
    assert "not read" in str(why)


def test_no_driver_at_all_is_a_failure(tmp_path: Path) -> None:
    """Not an empty node."""
    on = node(tmp_path, *FIVE)
    with world_of(on) as world:
        on.simulation.fault(Return(code=1))
        with pytest.raises(StepFailed):
            world.observe()
        on.simulation.clear()
        on.simulation.set_driver("not-loaded")
        with pytest.raises(StepFailed, match="kernel module"):
            world.reopen()


# device users


def test_programs_and_the_pods_of_a_request_are_joined(tmp_path: Path) -> None:
    """A program by its name and instance, a pod by what the kubelet gave it."""
    on = node(tmp_path, *FIVE)
    pod = DeviceUser(UserKind.POD, "ns/train")
    with opener() as program:
        on.simulation.use_by(program.pid, BUS_ID, gpu_instance_id=5, compute_instance_id=0)
        with world_of(on, {MigPart(on.uuid(), 5): frozenset({pod})}) as world:
            uuid, found = on_uuid(world), world.device_users()

    name = DeviceUser(UserKind.PROCESS, f"{program.pid} sleep")
    assert found == {MigPart(uuid, 5): frozenset({pod, name})}


def test_a_gpu_whose_programs_are_not_listed_is_in_use_with_all_its_instances(
    tmp_path: Path,
) -> None:
    """Else what is busy would be taken for idle. The other GPU has no device user."""
    on = node(tmp_path, *FIVE, count=2)
    first = on.gpus()[0]
    with world_of(on) as world:
        call = "nvmlDeviceGetComputeRunningProcesses_v3"
        on.simulation.fault(Return(code=999), call, bus_id=BUS_ID)
        found = world.device_users()

    parts = (None, *(instance.id for instance in first.instances))
    assert found.keys() == {MigPart(first.uuid, part) for part in parts}
    [[user]] = set(found.values())
    assert user.kind is UserKind.PROCESS
    assert "its programs are not known: nvmlDeviceGetComputeRunningProcesses" in user.name


def test_device_users_are_not_known_where_the_session_is_gone(
    tmp_path: Path,
) -> None:
    on = node(tmp_path, *FIVE)
    with world_of(on) as world:
        on.simulation.fault(Return(code=1))
        with pytest.raises(StepFailed):
            world.device_users()


@pytest.mark.parametrize("file", ["dev/nvidia1", "dev/nvidia-caps/nvidia-cap147"])
def test_who_has_a_device_file_open_holds_that_gpu(tmp_path: Path, file: str) -> None:
    """The GPU's own file, or that of an instance on it; the driver lists no such program."""
    on = node(tmp_path, *FIVE, count=2)
    path = on.simulation.host_root / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    (on.simulation.host_root / "dev/nvidiactl").touch()
    elsewhere = tmp_path / "elsewhere/dev/nvidia0"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.touch()
    files = (path, on.simulation.host_root / "dev/nvidiactl", elsewhere)
    with opener(*files) as monitor, world_of(on) as world:
        second, found = world.observe()[1].uuid, world.device_users()

    name = DeviceUser(UserKind.PROCESS, f"{monitor.pid} sleep")
    assert found == {MigPart(second, None): frozenset({name})}


def test_the_persistence_daemon_is_in_nobodys_way(tmp_path: Path) -> None:
    """It has every GPU open on most nodes."""
    on = node(tmp_path, model=H100, mig=False)
    daemon = tmp_path / "nvidia-persistenced"
    shutil.copy(shutil.which("sleep") or "", daemon)
    file = on.simulation.host_root / "dev/nvidia0"
    with opener(file, program=str(daemon)), world_of(on) as world:
        assert not any(world.device_users().values())


def test_a_container_that_sees_the_host_s_processes_leaves_those_of_pods_to_the_driver(
    tmp_path: Path,
) -> None:
    on = node(tmp_path)
    root = on.simulation.host_root
    process(root / "proc", 1, "init", parent=0)
    process(root / "proc", 22, "nv-hostengine", f"{root}/dev/nvidia0")
    process(root / "proc", 23, "nvidia-device-p", f"{root}/dev/nvidia0", cgroup=PODS_CGROUP)
    with world_of(on) as world:
        held = world.device_users()[MigPart(on_uuid(world), None)]
    assert held == {DeviceUser(UserKind.PROCESS, "22 nv-hostengine")}


@pytest.mark.parametrize(("pod_uid", "waits"), [("uid-1", False), (None, True)])
def test_a_change_does_not_wait_for_the_agent_next_to_the_actuator(
    tmp_path: Path, pod_uid: str | None, waits: bool
) -> None:
    """A cgroup namespace hides that both are in one pod, unless the actuator knows its pod."""
    on = node(tmp_path)
    root = on.simulation.host_root
    reader = f"0::/../cri-containerd-{'0e' * 32}.scope"
    process(root / "proc", 1, "init", parent=0)
    process(root / "proc", 7, "gpuscape", cgroup="0::/")
    (root / "proc/7/ns").mkdir()
    (root / "proc/7/ns/cgroup").symlink_to("cgroup:[4026532567]")
    (root / "proc/self").symlink_to("7")
    process(root / "proc", 8, "gpuscape", f"{root}/dev/nvidia0", cgroup=reader)
    with on.simulation, NvmlWorld(on.start, pod_uid=pod_uid) as world:
        world.observe()
        held = world.device_users().get(MigPart(on_uuid(world), None), frozenset())
    assert held == ({DeviceUser(UserKind.PROCESS, "8 gpuscape")} if waits else frozenset())


def test_steps_read_the_gpus_that_they_change_and_no_other(tmp_path: Path) -> None:
    """All are read once, for the plan, however many steps it takes, and not in the fresh session.

    Nor is anybody asked who uses the others, after the plan.
    """
    found: dict[GpuLayout, dict[str, int]] = {}
    for layout in (layout_from_counts({"7g.40gb": 1}), layout_from_counts({"1g.5gb": 7})):
        on = node(tmp_path / str(len(found)), count=2)
        start, journal = on.start, Journal(on.journal)
        with on.simulation, journal, NvmlWorld(start) as world:
            on.simulation.log_calls()
            uuid = world.observe()[0].uuid
            assert apply(world, journal, {uuid: layout}, origin="a test").has_begun
            calls = on.simulation.calls()
        other = machines.gpu(1).bus_id
        found[layout] = {name: count for (name, bus_id), count in calls.items() if bus_id == other}

    one, seven = found.values()
    assert one == seven
    assert one["nvmlDeviceGetMigMode"] == 2  # here above, and for the plan


def test_a_gpu_that_breaks_down_meanwhile_does_not_take_back_a_change_of_another(
    tmp_path: Path,
) -> None:
    """Nor does one hold it up that hangs: it is not asked."""
    on = node(tmp_path, count=2)
    hangs = Hang(uninterruptible=True)

    class Breaking(NvmlWorld):
        def perform(self, step: MigStep) -> None:
            super().perform(step)
            on.simulation.fault(hangs, "nvmlDevice*", bus_id=machines.gpu(1).bus_id)

    with on.simulation, Journal(on.journal) as journal, Breaking(on.start) as world:
        uuid = world.observe()[0].uuid
        result = apply(world, journal, {uuid: layout_from_counts({"7g.40gb": 1})}, origin="a test")
        on.simulation.clear()

    assert result.outcome is Outcome.APPLIED
    assert {one[0] for one in on.found()} == {"7g.40gb"}


def test_a_new_session_does_not_take_another_gpu_at_the_same_place_for_the_one_that_was_there(
    tmp_path: Path,
) -> None:
    """Who is at a bus id is read from the driver each time."""
    on = node(tmp_path, *FIVE)
    with world_of(on) as world:
        before = on_uuid(world)
        on.simulation.edit(with_other_gpu)
        world.reopen()
        assert [one.uuid for one in world.observe([before])] == ["GPU-" + "9" * 8]


def with_other_gpu(state: MachineState) -> MachineState:
    """Another GPU in the slot of the first one."""
    assert state.machine is not None
    gpus = (replace(state.machine.gpus[0], uuid="GPU-" + "9" * 8), *state.machine.gpus[1:])
    return replace(state, machine=replace(state.machine, gpus=gpus))


def test_a_gpu_that_is_read_alone_is_as_it_is_now(tmp_path: Path) -> None:
    """Also where it is gone, and where this session has not read it before."""
    on = node(tmp_path, *FIVE, count=2)
    with world_of(on) as world:
        first, second = (one.uuid for one in world.observe())
        world.perform(CreateInstance(gpu=second, profile="1g.5gb", start=2, size=1))
        [alone] = world.observe([second])
        assert [one.start for one in alone.instances] == [2]
        assert world.device_users() == {}
        broken = Return(code=nv.NVML_ERROR_UNKNOWN)
        other = machines.gpu(1).bus_id
        on.simulation.fault(broken, "nvmlDeviceGetMigMode", bus_id=other)
        assert [one.uuid for one in world.observe()] == [first]
        assert [one.uuid for one in world.observe([first])] == [first]
        assert list(world.unread) == [other]
        on.simulation.clear()
        world.observe()
        on.simulation.fault(broken, "nvmlDeviceGetMigMode")
        assert list(world.observe([first])) == []
        assert list(world.unread) == [BUS_ID]
        assert list(world.observe()) == []
        assert len(world.unread) == 2
        on.simulation.clear()
        assert [one.uuid for one in world.observe([first])] == [first, second]
        assert world.unread == {}


# pods


def test_a_pod_that_comes_while_a_change_runs_is_seen_before_the_next_step(tmp_path: Path) -> None:
    """The kubelet's checkpoint is read each time; what cannot be read is no answer."""
    on = node(tmp_path, *FIVE)
    gpu = on.gpus()[0]
    first = gpu.instances[0]
    with world_of(on) as world:
        assert world.device_users() == {}
        file = write_checkpoint(on.simulation.host_root, {"a": [str(first.compute[0].uuid)]})
        pod = DeviceUser(UserKind.POD, "default/a")
        assert world.device_users() == {MigPart(gpu.uuid, first.id): {pod}}
        file.write_text("garbage")
        with pytest.raises(StepFailed, match="no checkpoint of a kubelet"):
            world.device_users()
