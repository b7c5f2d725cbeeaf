# SPDX-License-Identifier: Apache-2.0
"""The MIG mode: at once, pending, refused; and what reset, driver and boot leave of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml as nv
import pytest

from base.errors import BadInput
from simulator.simulation import Simulation
from tests import machines
from tests.controlplane.lifetime import end_with_parent
from tests.simulator.mig.conftest import Machine
from tests.simulator.mig.mig_calls import OFF, ON, code_of, create, cut, devices, layout

GPU = machines.gpu(0).bus_id
BY_RESET = ("a30", "a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb")
AT_ONCE = ("h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "gb200", "rtx-pro-6000")
SUCCESS = nv.NVML_SUCCESS
IN_USE = nv.NVML_ERROR_IN_USE
RESET_REQUIRED = nv.NVML_ERROR_RESET_REQUIRED


def smallest(simulation: Simulation) -> int:
    """Id of the profile of one slice."""
    (gpu,) = (simulation.state.machine.gpus if simulation.state.machine else ())[:1]
    return simulation.state.models[gpu.model].mig[0].id


@pytest.mark.parametrize("model", AT_ONCE)
def test_on_hopper_and_later_the_mode_changes_at_once(machine: Machine, model: str) -> None:
    """In both directions, if nothing runs there."""
    with machines.session(machine(model)) as handle:
        on = nv.nvmlDeviceSetMigMode(handle(0), ON), nv.nvmlDeviceGetMigMode(handle(0))
        off = nv.nvmlDeviceSetMigMode(handle(0), OFF), nv.nvmlDeviceGetMigMode(handle(0))

    assert (on, off) == ((SUCCESS, [1, 1]), (SUCCESS, [0, 0]))


def test_on_hopper_it_changes_while_others_have_nvml_open(machine: Machine) -> None:
    """Exporters and the device plugin need not end."""
    simulation = machine("h100-sxm5-80gb")
    with machines.session(simulation) as handle, another_client(simulation):
        assert nv.nvmlDeviceSetMigMode(handle(0), ON) == SUCCESS


@pytest.mark.parametrize("model", BY_RESET)
def test_on_ampere_the_mode_waits_for_a_reset(machine: Machine, model: str) -> None:
    """Where the driver leaves that to others: until then it is pending, in both directions."""
    simulation = machine(model)
    simulation.set_resets(mode_change="reset-required")
    steps = []
    for mode in (ON, OFF):
        with machines.session(simulation) as handle:
            status = nv.nvmlDeviceSetMigMode(handle(0), mode)
            steps.append((status, nv.nvmlDeviceGetMigMode(handle(0))))
        simulation.reset_gpu(GPU)
        with machines.session(simulation) as handle:
            steps.append((SUCCESS, nv.nvmlDeviceGetMigMode(handle(0))))

    assert steps == [
        (RESET_REQUIRED, [0, 1]),
        (SUCCESS, [1, 1]),
        (RESET_REQUIRED, [1, 0]),
        (SUCCESS, [0, 0]),
    ]


def test_the_driver_may_reset_an_idle_gpu_by_itself(machine: Machine) -> None:
    """Not while another program has NVML open."""
    simulation = machine()
    with machines.session(simulation) as handle:
        with another_client(simulation):
            busy = nv.nvmlDeviceSetMigMode(handle(0), ON), nv.nvmlDeviceGetMigMode(handle(0))
        idle = nv.nvmlDeviceSetMigMode(handle(0), ON), nv.nvmlDeviceGetMigMode(handle(0))

    assert (busy, idle) == ((IN_USE, [0, 1]), (SUCCESS, [1, 1]))


def test_a_pending_mode_is_cancelled_by_the_one_that_holds(machine: Machine) -> None:
    simulation = machine()
    simulation.set_resets(mode_change="reset-required")
    with machines.session(simulation) as handle:
        nv.nvmlDeviceSetMigMode(handle(0), ON)
        back = nv.nvmlDeviceSetMigMode(handle(0), OFF), nv.nvmlDeviceGetMigMode(handle(0))

    assert back == (SUCCESS, [0, 0])


@pytest.mark.parametrize("model", ["a100-sxm4-40gb", "h100-sxm5-80gb"])
def test_a_gpu_in_use_keeps_its_mode(machine: Machine, model: str) -> None:
    """The call succeeds and its status says so; when the process has ended it can be repeated."""
    simulation = machine(model)
    simulation.add_process(GPU, 71)
    with machines.session(simulation) as handle:
        busy = nv.nvmlDeviceSetMigMode(handle(0), ON), nv.nvmlDeviceGetMigMode(handle(0))
        simulation.remove_process(71)
        idle = nv.nvmlDeviceSetMigMode(handle(0), ON), nv.nvmlDeviceGetMigMode(handle(0))

    assert (busy, idle) == ((IN_USE, [0, 1]), (SUCCESS, [1, 1]))


def test_mig_is_not_left_while_there_are_instances(machine: Machine) -> None:
    simulation = machine("h100-sxm5-80gb", mig=True)
    with machines.session(simulation) as handle:
        instance = create(handle(0), smallest(simulation))
        there = nv.nvmlDeviceSetMigMode(handle(0), OFF), nv.nvmlDeviceGetMigMode(handle(0))
        nv.nvmlGpuInstanceDestroy(instance)
        gone = nv.nvmlDeviceSetMigMode(handle(0), OFF), nv.nvmlDeviceGetMigMode(handle(0))

    assert (there, gone) == ((IN_USE, [1, 0]), (SUCCESS, [0, 0]))


def test_only_gpus_that_have_mig_and_modes_that_there_are(machine: Machine) -> None:
    simulation = machine("l40s")
    with machines.session(simulation) as handle:
        without = code_of(nv.nvmlDeviceSetMigMode, handle(0), ON)
    simulation = machine("h100-sxm5-80gb")
    with machines.session(simulation) as handle:
        senseless = code_of(nv.nvmlDeviceSetMigMode, handle(0), 2)

    assert without == nv.NVML_ERROR_NOT_SUPPORTED
    assert senseless == nv.NVML_ERROR_INVALID_ARGUMENT


# reset, driver, boot

RESET, DRIVER, BOOT = "reset", "driver", "boot"


@pytest.mark.parametrize("model", [*BY_RESET, *AT_ONCE])
@pytest.mark.parametrize("event", [RESET, DRIVER, BOOT])
def test_no_instance_outlives_them_and_the_mode_does_as_documented(
    machine: Machine, model: str, event: str
) -> None:
    """Ampere keeps its mode in the board, later GPUs forget it with the driver."""
    simulation = machine(model, mig=True)
    with machines.session(simulation) as handle:
        cut(create(handle(0), smallest(simulation)), 0)
        (device,) = devices(handle(0))
        uuid = nv.nvmlDeviceGetUUID(device)

    happen(simulation, event)

    kept = model in BY_RESET or event == RESET
    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMigMode(handle(0)) == [int(kept)] * 2
        if kept:
            assert (layout(handle(0)), devices(handle(0))) == ([], [])
        assert code_of(nv.nvmlDeviceGetHandleByUUID, uuid.encode()) == nv.NVML_ERROR_NOT_FOUND
    files = simulation.host_root / "proc/driver/nvidia/capabilities/gpu0/mig"
    assert not list(files.glob("gi*"))


@pytest.mark.parametrize("event", [RESET, DRIVER, BOOT])
def test_on_ampere_a_pending_mode_holds_afterwards(machine: Machine, event: str) -> None:
    simulation = machine()
    simulation.set_resets(mode_change="reset-required")
    with machines.session(simulation) as handle:
        nv.nvmlDeviceSetMigMode(handle(0), ON)

    happen(simulation, event)

    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMigMode(handle(0)) == [1, 1]


def test_the_same_place_after_a_boot_gives_the_same_uuid(machine: Machine) -> None:
    """Which is how a layout is restored beneath pods that still have it."""
    simulation = machine(mig=True)
    uuids = []
    for _ in range(2):
        with machines.session(simulation) as handle:
            cut(create(handle(0), smallest(simulation), 3), 0)
            uuids.append(nv.nvmlDeviceGetUUID(devices(handle(0))[0]))
        simulation.reboot()

    assert uuids[0] == uuids[1]


def test_a_boot_ends_every_process_and_has_another_id(machine: Machine) -> None:
    simulation = machine()
    simulation.add_process(GPU, 71)
    boot_id = simulation.host_root / "proc/sys/kernel/random/boot_id"
    before = boot_id.read_text("utf-8")

    simulation.reboot()

    assert simulation.state.processes == ()
    assert boot_id.read_text("utf-8") != before


def test_what_is_in_use_is_neither_reset_nor_unloaded(machine: Machine) -> None:
    """By a process on it, or by anybody who has NVML open."""
    simulation = machine()
    acts: tuple[Callable[[], None], ...] = (
        lambda: simulation.reset_gpu(GPU),
        simulation.reload_driver,
    )
    with another_client(simulation):
        for act in acts:
            with pytest.raises(BadInput, match="close NVML in all processes first"):
                act()
    simulation.add_process(GPU, 71)
    for act in acts:
        with pytest.raises(BadInput, match="in use: end its processes first"):
            act()
    simulation.remove_process(71)
    simulation.reset_gpu(GPU)
    simulation.reload_driver()


def test_a_process_that_has_ended_does_not_stop_a_reset(machine: Machine) -> None:
    simulation = machine()
    process = subprocess.Popen(["sleep", "600"], preexec_fn=end_with_parent())
    simulation.use_by(process.pid, GPU)
    with pytest.raises(BadInput, match="in use"):
        simulation.reset_gpu(GPU)
    process.kill()
    process.wait()

    simulation.reset_gpu(GPU)

    assert simulation.state.processes == ()


def test_a_virtual_machine_has_to_be_booted_instead(machine: Machine) -> None:
    """A GPU that is passed through to it cannot be reset from within."""
    simulation = machine(virtualization=1)
    with machines.session(simulation) as handle:
        status = nv.nvmlDeviceSetMigMode(handle(0), ON)
    with pytest.raises(BadInput, match="passed through to a virtual machine: reboot it"):
        simulation.reset_gpu(GPU)
    simulation.reboot()

    with machines.session(simulation) as handle:
        assert (status, nv.nvmlDeviceGetMigMode(handle(0))) == (RESET_REQUIRED, [1, 1])


def happen(simulation: Simulation, event: str) -> None:
    """One of the three."""
    if event == RESET:
        simulation.reset_gpu(GPU)
    elif event == DRIVER:
        simulation.reload_driver()
    else:
        simulation.reboot()


CLIENT = """
import sys
from collections.abc import Callable
from pathlib import Path
import pynvml as nv
from simulator.simulation import Simulation
with Simulation.open(Path(sys.argv[1])):
    nv.nvmlInit()
    print("open", flush=True)
    sys.stdin.read()
"""


class another_client:  # noqa: N801  # used as a function
    """Another process has NVML open, within."""

    def __init__(self, simulation: Simulation) -> None:
        self._file: Path = simulation.state_file

    def __enter__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent(),
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "open\n"

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
