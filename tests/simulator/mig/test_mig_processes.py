# SPDX-License-Identifier: Apache-2.0
"""MIG instances that processes use; processes that change them at once, or die while they do."""

from __future__ import annotations

import subprocess
import sys

import pynvml as nv
import pytest

from simulator.simulation import Return
from tests import machines
from tests.controlplane.lifetime import end_with_parent
from tests.simulator.mig.conftest import Machine
from tests.simulator.mig.mig_calls import code_of, create, cut, devices, layout

GPU = machines.gpu(0).bus_id
ONE, THREE = 19, 9
"""Ids of the profiles of a GPU of seven slices."""
IN_USE = nv.NVML_ERROR_IN_USE
NOT_SUPPORTED = nv.NVML_ERROR_NOT_SUPPORTED


# in use


def test_what_a_process_uses_cannot_be_destroyed(machine: Machine) -> None:
    """Its compute instance, and so its GPU instance; one beside it can be."""
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        busy, idle = create(handle(0), THREE), create(handle(0), THREE)
        on_busy, on_idle = cut(busy, 2), cut(idle, 2)
        simulation.add_process(GPU, 71, gpu_instance_id=2, compute_instance_id=0)

        codes = [
            code_of(nv.nvmlComputeInstanceDestroy, on_busy),
            code_of(nv.nvmlGpuInstanceDestroy, busy),
            code_of(nv.nvmlComputeInstanceDestroy, on_idle),
            code_of(nv.nvmlGpuInstanceDestroy, idle),
        ]
        simulation.remove_process(71)
        after = [
            code_of(nv.nvmlGpuInstanceDestroy, busy),
            code_of(nv.nvmlComputeInstanceDestroy, on_busy),
            code_of(nv.nvmlGpuInstanceDestroy, busy),
        ]

    assert codes == [IN_USE, IN_USE, 0, 0]
    assert after == [IN_USE, 0, 0]  # the first while its compute instance was there


def test_a_process_may_die_late(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked to end, it holds its instance for some seconds more."""
    simulation = machine(mig=True)
    now = [1000.0]
    monkeypatch.setattr("simulator.simulation.time.monotonic", lambda: now[0])
    with machines.session(simulation) as handle:
        compute = cut(create(handle(0), THREE), 2)
        simulation.add_process(GPU, 71, gpu_instance_id=2, compute_instance_id=0)
        simulation.remove_process(71, after_seconds=5.0)

        now[0] += 4.9
        early = code_of(nv.nvmlComputeInstanceDestroy, compute)
        running = nv.nvmlDeviceGetComputeRunningProcesses(handle(0))
        now[0] += 0.2
        late = code_of(nv.nvmlComputeInstanceDestroy, compute)

        assert ([one.pid for one in running], early, late) == ([71], IN_USE, 0)
        assert nv.nvmlDeviceGetComputeRunningProcesses(handle(0)) == []


def test_a_real_process_holds_its_device_until_it_ends(machine: Machine) -> None:
    """However it ends."""
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        compute = cut(create(handle(0), THREE), 2)
        process = subprocess.Popen(["sleep", "600"], preexec_fn=end_with_parent())
        try:
            simulation.use_by(process.pid, GPU, gpu_instance_id=2, compute_instance_id=0)
            running = [one.pid for one in nv.nvmlDeviceGetComputeRunningProcesses(handle(0))]
            busy = code_of(nv.nvmlComputeInstanceDestroy, compute)
        finally:
            process.kill()
            process.wait()

        assert (running, busy) == ([process.pid], IN_USE)
        assert code_of(nv.nvmlComputeInstanceDestroy, compute) == 0


def test_a_calling_process_can_hold_a_device_itself(machine: Machine) -> None:
    """As one does that opens a CUDA context on it; on a GPU with MIG it takes a MIG device."""
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        compute = cut(create(handle(0), THREE), 2)
        (device,) = devices(handle(0))
        hold = nv._nvmlGetFunctionPointer("gpuscapeContextCreate")

        codes = [hold(device), hold(handle(0))]

        assert codes == [0, NOT_SUPPORTED]
        assert code_of(nv.nvmlComputeInstanceDestroy, compute) == IN_USE


HOLD = """
import sys
from pathlib import Path
import pynvml as nv
from simulator.simulation import Simulation
with Simulation.open(Path(sys.argv[1])):
    nv.nvmlInit()
    device = nv.nvmlDeviceGetMigDeviceHandleByIndex(nv.nvmlDeviceGetHandleByIndex(0), 0)
    print(nv._nvmlGetFunctionPointer("gpuscapeContextCreate")(device), flush=True)
    sys.stdin.read()
"""


def test_a_calling_process_holds_its_device_until_it_ends(machine: Machine) -> None:
    """It is taken from nobody then, though it was not given back."""
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        compute = cut(create(handle(0), THREE), 2)
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(simulation.state_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent(),
        )
        with process:
            assert process.stdout
            code = process.stdout.readline()
            busy = code_of(nv.nvmlComputeInstanceDestroy, compute)
            process.kill()

        assert (code, busy) == ("0\n", IN_USE)
        assert code_of(nv.nvmlComputeInstanceDestroy, compute) == 0


# several processes, faults, crashes

CREATE = """
import sys
from pathlib import Path
import pynvml as nv
from simulator.simulation import Simulation
with Simulation.open(Path(sys.argv[1])):
    nv.nvmlInit()
    gpu = nv.nvmlDeviceGetHandleByIndex(0)
    made = 0
    for _ in range(7):
        try:
            nv.nvmlDeviceCreateGpuInstance(gpu, 19)
            made += 1
        except nv.NVMLError_InsufficientResources:
            pass
    print(made)
"""


def test_processes_that_create_at_the_same_time_share_one_gpu(machine: Machine) -> None:
    """Together they get the seven that there are, each at a place of its own."""
    simulation = machine(mig=True)
    command = [sys.executable, "-c", CREATE, str(simulation.state_file)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=end_with_parent())
        for _ in range(3)
    ]

    made = [int(process.communicate()[0]) for process in running]

    with machines.session(simulation) as handle:
        assert sum(made) == 7
        assert [start for _, _, start, _ in layout(handle(0))] == list(range(7))


DIE = """
import os, signal, sys
from pathlib import Path
import pynvml as nv
from simulator.host import mig_capabilities
from simulator.simulation import Simulation

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def half(path, body):
    with open(path, "wb") as stream:
        stream.write(body[: len(body) // 2])
    die()

with Simulation.open(Path(sys.argv[1])):
    nv.nvmlInit()
    gpu = nv.nvmlDeviceGetHandleByIndex(0)
    {where}
    nv.nvmlDeviceCreateGpuInstance(gpu, 9)
"""


@pytest.mark.parametrize(
    ("where", "made"),
    [
        ("Path.write_bytes = half", False),
        ("Path.replace = die", False),
        ("mig_capabilities.show_instances = die", True),
    ],
)
def test_a_process_that_is_killed_in_a_write_leaves_a_whole_state(
    machine: Machine, where: str, made: bool
) -> None:
    """The one before or the one after; the next process goes on, and files agree again."""
    simulation = machine(mig=True)
    command = [sys.executable, "-c", DIE.replace("{where}", where), str(simulation.state_file)]

    done = subprocess.run(command, check=False, capture_output=True, preexec_fn=end_with_parent())

    assert done.returncode == -9, done.stderr
    with machines.session(simulation) as handle:
        there = layout(handle(0))
        create(handle(0), ONE, 0)
    assert there == ([(THREE, 2, 4, 4)] if made else [])
    folder = simulation.host_root / "proc/driver/nvidia/capabilities/gpu0/mig"
    assert sorted(one.name for one in folder.iterdir()) == (["gi2", "gi7"] if made else ["gi7"])
    assert not list(simulation.state_file.parent.glob(".state*"))


def test_any_call_can_be_made_to_fail_at_a_given_count(machine: Machine) -> None:
    """Of several names together: the third change fails, whichever it is."""
    simulation = machine(mig=True)
    changes = "nvml*Create* nvml*Destroy nvmlDeviceSetMigMode"
    simulation.fault(Return(code=999), changes, after=2, times=1)
    with machines.session(simulation) as handle:
        instance = create(handle(0), THREE)
        compute = cut(instance, 2)
        third = code_of(nv.nvmlComputeInstanceDestroy, compute)
        fourth = code_of(nv.nvmlComputeInstanceDestroy, compute)

    assert (third, fourth) == (999, 0)


def test_a_call_may_fail_when_its_work_is_done(machine: Machine) -> None:
    """The caller cannot tell; only reading again does."""
    simulation = machine(mig=True)
    simulation.fault(Return(code=999), "nvmlDeviceCreateGpuInstance", times=1, late=True)
    with machines.session(simulation) as handle:
        code = code_of(create, handle(0), THREE)

        assert (code, layout(handle(0))) == (999, [(THREE, 2, 4, 4)])
