# SPDX-License-Identifier: Apache-2.0
"""nvmlDeviceSetMigMode where a reset is needed: what the documents say, by pynvml and by C.

The expected numbers are typed from the documents that stand next to them, not from the simulator.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml as nv
import pytest

from base.errors import BadInput
from simulator.clibrary.compiler import place_library
from simulator.clibrary.machine_server import MachineServer
from simulator.driver import clients
from simulator.simulation import Simulation
from tests import machines
from tests.agent.agent_process import until
from tests.controlplane.lifetime import end_with_parent
from tests.simulator.clibrary.serving import Served
from tests.simulator.mig.conftest import Machine
from tests.simulator.mig.mig_calls import ON, code_of

GPU = machines.gpu(0).bus_id
OTHER = machines.gpu(1).bus_id
A100, H100 = "a100-sxm4-40gb", "h100-sxm5-80gb"
LOST, INVALID_ARGUMENT = 15, 2


def change_mode(mode: int) -> list[Any]:
    """Code of the call, activation status, and current and pending mode or the code instead."""
    import pynvml as nv

    nv.nvmlInit()
    gpu = nv.nvmlDeviceGetHandleByIndex(0)
    try:
        first = [0, nv.nvmlDeviceSetMigMode(gpu, mode)]
    except nv.NVMLError as error:
        first = [error.value, None]
    try:
        after = nv.nvmlDeviceGetMigMode(nv.nvmlDeviceGetHandleByIndex(0))
    except nv.NVMLError as error:
        after = [error.value]
    nv.nvmlShutdown()
    return [*first, *after]


@contextmanager
def served(simulation: Simulation) -> Iterator[Served]:
    """The machine, for programs that load the C library."""
    folder = simulation.state_file.parent / "library"
    place_library(folder)
    server = MachineServer(simulation, folder)
    server.start()
    try:
        yield Served(simulation, server, folder)
    finally:
        server.close()


def by_pynvml(simulation: Simulation, mode: int) -> list[Any]:
    """In this process."""
    with simulation:
        return change_mode(mode)


def by_library(simulation: Simulation, mode: int) -> list[Any]:
    """In a process of its own, which loads libnvidia-ml.so.1."""
    program = f"import json\nfrom typing import Any\n{inspect.getsource(change_mode)}"
    with served(simulation) as there:
        done = there.run(f"{program}\nimport sys\nprint(json.dumps(change_mode({mode})))")
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout)
    return answer


def nobody(_: Simulation) -> None:
    """Nobody uses the GPU."""


def a_program(simulation: Simulation) -> None:
    """A CUDA program, in a pod or not."""
    simulation.add_process(GPU, 71)


def persistence_daemon(simulation: Simulation) -> None:
    """It has every GPU open, and no context."""
    simulation.add_process(GPU, 72, name="nvidia-persistenced", kind="client")


def dcgm(simulation: Simulation) -> None:
    """As the daemon."""
    simulation.add_process(GPU, 73, name="nv-hostengine", kind="client")


def exporter(simulation: Simulation) -> None:
    """Another process has NVML open: here the one that started these tests."""
    simulation.edit(clients.with_client(clients.client_of(os.getppid())))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request, and the answer in the documents."""

    source: str
    answer: list[Any]
    """Code, activation status, current and pending mode."""
    model: str = A100
    mode: int = 1
    user: Callable[[Simulation], None] = nobody
    facts: dict[str, Any] = field(default_factory=dict)
    resets: dict[str, Any] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()


NVML_H = "nvml.h, nvmlDeviceSetMigMode"
GUIDE = "MIG user guide, Enable MIG Mode"
FABRIC = "Fabric Manager user guide, GPU VM System Reset Capabilities and Limitations"
CASES = {
    "idle A100": Case(source=GUIDE, answer=[0, 0, 1, 1]),
    "idle A30": Case(source=GUIDE, model="a30", answer=[0, 0, 1, 1]),
    "off again": Case(source=GUIDE, mode=0, facts={"mig": True}, answer=[0, 0, 0, 0]),
    "the mode it has": Case(source=NVML_H, mode=0, answer=[0, 0, 0, 0]),
    "a program": Case(source=NVML_H, user=a_program, answer=[0, 19, 0, 1]),
    "persistenced": Case(
        source="NVIDIA/gpu-operator#118", user=persistence_daemon, answer=[0, 19, 0, 1]
    ),
    "DCGM": Case(source=f"{GUIDE}, Driver Clients", user=dcgm, answer=[0, 19, 0, 1]),
    "an exporter": Case(source=f"{GUIDE}, Driver Clients", user=exporter, answer=[0, 19, 0, 1]),
    "pass-through": Case(source=NVML_H, facts={"virtualization": 1}, answer=[0, 16, 0, 1]),
    "pass-through in the guide": Case(
        source=f"{GUIDE}, its example in a VM",
        facts={"virtualization": 1},
        resets={"mode_change": "not-supported"},
        answer=[0, 3, 0, 1],
    ),
    "behind NVSwitches": Case(source=FABRIC, facts={"count": 2}, answer=[0, 0, 1, 1]),
    "without Fabric Manager": Case(
        source=FABRIC,
        facts={"count": 2},
        resets={"fabric_manager": False},
        answer=[0, 16, 0, 1],
    ),
    "host of vGPUs": Case(
        source="published nvidia-smi -mig 1 on an ESXi host",
        facts={"virtualization": 3},
        answer=[0, 3, 0, 1],
    ),
    "vGPU": Case(source=NVML_H, facts={"virtualization": 2}, answer=[3, None, 0, 0]),
    "no MIG": Case(source=NVML_H, model="l40s", answer=[3, None, 3]),
    "not root": Case(source=NVML_H, lacking=("root",), answer=[4, None, 0, 0]),
    "no such mode": Case(source=NVML_H, mode=2, answer=[2, None, 0, 0]),
    "H100, idle": Case(source=f"{GUIDE}, Hopper", model=H100, answer=[0, 0, 1, 1]),
    "H100, a program": Case(source=NVML_H, model=H100, user=a_program, answer=[0, 19, 0, 1]),
    "H100, persistenced": Case(
        source=f"{GUIDE}, Hopper", model=H100, user=persistence_daemon, answer=[0, 0, 1, 1]
    ),
    "H100, pass-through": Case(
        source=f"{GUIDE}, Hopper", model=H100, facts={"virtualization": 1}, answer=[0, 0, 1, 1]
    ),
    "a reset that fails": Case(source=NVML_H, resets={"result": "fails"}, answer=[0, 999, 0, 1]),
    "a reset that loses the GPU": Case(
        source=f"{NVML_H}, nvmlReturn_t", resets={"result": "loses"}, answer=[0, 15, 15]
    ),
}


@pytest.mark.parametrize("ask", [by_pynvml, by_library])
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_published_one(
    machine: Machine, name: str, ask: Callable[[Simulation, int], list[Any]]
) -> None:
    case = CASES[name]
    simulation = machine(case.model, **case.facts)
    simulation.set_resets(**case.resets)
    if case.lacking:
        simulation.revoke(*case.lacking)  # type: ignore[arg-type]  # of the table
    case.user(simulation)

    assert ask(simulation, case.mode) == case.answer, case.source


def test_a_context_of_the_caller_is_in_its_own_way(machine: Machine) -> None:
    """Its session is not, as nvidia-smi has one too; a program on the GPU is, whoever runs it."""
    simulation = machine()
    simulation.use_by(os.getpid(), GPU)

    assert by_pynvml(simulation, 1) == [0, 19, 0, 1]


def test_the_mode_that_holds_cancels_a_pending_one(machine: Machine) -> None:
    simulation = machine()
    simulation.add_process(GPU, 71)
    assert by_pynvml(simulation, 1) == [0, 19, 0, 1]

    assert by_pynvml(simulation, 0) == [0, 0, 0, 0]


def test_errors_and_what_waited_for_a_reset_are_gone(machine: Machine) -> None:
    """Also where the driver resets by itself. Source: nvidia-smi(1)."""
    simulation = machine()
    simulation.set_readings(
        GPU, ecc_corrected=3, ecc_uncorrected=1, recovery_action=1, remap_pending=True,
        pcie_replays=7, remapped_uncorrectable=1,
    )  # fmt: skip

    assert by_pynvml(simulation, 1) == [0, 0, 1, 1]

    readings = simulation.state.gpus[GPU].readings
    assert (readings.ecc_corrected, readings.ecc_uncorrected) == (0, 0)
    assert (readings.recovery_action, readings.remap_pending, readings.pcie_replays) == (0, 0, 0)
    assert readings.remapped_uncorrectable == 1  # in the board for ever


@pytest.mark.parametrize(("result", "resets"), [("done", 1), ("fails", 0), ("loses", 0)])
def test_resets_are_counted_on_the_gpu_that_was_reset(
    machine: Machine, result: str, resets: int
) -> None:
    """Those that succeeded; a mode that the GPU has already takes none."""
    simulation = machine(count=2)
    simulation.set_resets(result=result)

    by_pynvml(simulation, 0)
    by_pynvml(simulation, 1)

    counted = {bus_id: gpu.resets for bus_id, gpu in simulation.state.gpus.items()}
    assert counted == {GPU: resets, OTHER: 0}


# time


class SetClock:
    """A machine's clock that only a test moves."""

    def __init__(self, simulation: Simulation) -> None:
        self.now = 5000.0
        simulation.clock = lambda: self.now


@contextmanager
def mode_being_changed(simulation: Simulation, answers: list[int]) -> Iterator[threading.Thread]:
    """A thread that changes the first GPU's mode; at the end it has its answer."""
    gpu = nv.nvmlDeviceGetHandleByIndex(0)
    call = threading.Thread(
        target=lambda: answers.append(nv.nvmlDeviceSetMigMode(gpu, ON)), daemon=True
    )
    call.start()
    until(lambda: simulation.state.gpus[GPU].reset is not None)
    yield call
    call.join()


def test_a_reset_takes_its_time_and_the_gpu_is_not_there_meanwhile(machine: Machine) -> None:
    """By the machine's clock, which may be set; others' calls do not block, other GPUs answer."""
    simulation = machine(count=2)
    simulation.set_resets(seconds=20.0)
    clock = SetClock(simulation)
    with machines.session(simulation) as handle:
        first, second = handle(0), handle(1)
        answers: list[int] = []
        with mode_being_changed(simulation, answers) as call:
            clock.now += 19.9
            looked_up = code_of(handle, 0), code_of(handle, 1)
            by_bus_id = code_of(nv.nvmlDeviceGetHandleByPciBusId, GPU.encode())
            read = code_of(nv.nvmlDeviceGetMigMode, first), code_of(nv.nvmlDeviceGetUUID, second)
            again = code_of(nv.nvmlDeviceSetMigMode, first, ON)
            count = nv.nvmlDeviceGetCount()
            assert call.is_alive()
            clock.now += 0.2
        assert nv.nvmlDeviceGetMigMode(first) == [1, 1]

    assert (looked_up, by_bus_id, read, again) == ((LOST, 0), LOST, (LOST, 0), LOST)
    assert (count, answers) == (2, [0])


CALL = """
import pynvml as nv
nv.nvmlInit()
nv.nvmlDeviceSetMigMode(nv.nvmlDeviceGetHandleByIndex(0), 1)
"""


def kill_during_the_reset(there: Served) -> None:
    """A program that changes the mode is killed in the middle."""
    program = subprocess.Popen(
        there.command(CALL), env=there.environment, preexec_fn=end_with_parent()
    )
    until(lambda: there.simulation.state.gpus[GPU].reset is not None)
    program.kill()
    program.wait()
    until(lambda: there.simulation.clients() == 0)


def test_a_reset_ends_though_its_caller_was_killed(machine: Machine) -> None:
    """The kernel goes on with it."""
    simulation = machine()
    simulation.set_resets(seconds=20.0)
    clock = SetClock(simulation)
    with served(simulation) as there:
        kill_during_the_reset(there)
    assert simulation.state.gpus[GPU].reset is not None
    clock.now += 21.0

    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMigMode(handle(0)) == [1, 1]


def test_a_reset_that_never_ends_is_left_by_whoever_is_killed(machine: Machine) -> None:
    """The GPU stays away until the machine is booted, and then has the mode."""
    simulation = machine(count=2)
    simulation.set_resets(result="hangs")
    clock = SetClock(simulation)
    with served(simulation) as there:
        kill_during_the_reset(there)
    clock.now += 1e6
    with machines.session(simulation) as handle:
        stuck = code_of(handle, 0), code_of(handle, 1)
    refused = f"the GPU at {GPU} is being reset: .*reboot"
    with pytest.raises(BadInput, match=refused):
        simulation.reset_gpu(GPU)
    with pytest.raises(BadInput, match=refused):
        simulation.reload_driver()

    simulation.reboot()

    assert stuck == (LOST, 0)
    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMigMode(handle(0)) == [1, 1]


def test_a_gpu_that_a_reset_loses_is_back_after_a_boot(machine: Machine) -> None:
    """And nothing but that GPU is lost."""
    simulation = machine(count=2)
    simulation.set_resets(result="loses")
    with machines.session(simulation) as handle:
        gpu = handle(0)
        assert nv.nvmlDeviceSetMigMode(gpu, ON) == LOST
        codes = [code_of(nv.nvmlDeviceGetName, gpu), code_of(handle, 0), code_of(handle, 1)]

    simulation.reboot()

    assert codes == [LOST, LOST, 0]
    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMigMode(handle(0)) == [1, 1]


# numbers


def test_a_gpu_may_have_other_numbers_afterwards(machine: Machine) -> None:
    """Its minor number and its handles, as nvml.h warns; never UUID and bus id."""
    simulation = machine(count=2)
    simulation.set_resets(renumbers=True)
    with machines.session(simulation) as handle:
        before, uuid = handle(0), nv.nvmlDeviceGetUUID(handle(0))
        assert nv.nvmlDeviceGetMinorNumber(before) == 0
        assert nv.nvmlDeviceSetMigMode(before, ON) == 0
        stale = code_of(nv.nvmlDeviceGetMigMode, before)
        gpu = nv.nvmlDeviceGetHandleByUUID(uuid.encode())
        assert nv.nvmlDeviceGetMigMode(gpu) == [1, 1]
        assert nv.nvmlDeviceGetMinorNumber(gpu) == 2
        assert nv.nvmlDeviceGetPciInfo(gpu).busId.lower().endswith(GPU)
        instance = nv.nvmlDeviceCreateGpuInstance(gpu, 19)
        assert nv.nvmlDeviceGetUUID(nv.nvmlGpuInstanceGetInfo(instance).device) == uuid
        other = nv.nvmlDeviceGetMinorNumber(handle(1))

    assert (stale, other) == (INVALID_ARGUMENT, 1)
    root = simulation.host_root
    assert sorted(node.name for node in root.glob("dev/nvidia?")) == ["nvidia1", "nvidia2"]
    capabilities = root / "proc/driver/nvidia/capabilities"
    folders = {path.parent.parent.name for path in capabilities.glob("gpu*/mig/gi*")}
    assert folders == {"gpu2"}
    minors = (root / "proc/driver/nvidia-caps/mig-minors").read_text("utf-8")
    assert "gpu2/gi0/access" in minors
    assert "gpu0/gi0/access" not in minors


def test_a_boot_gives_a_gpu_its_first_number_again(machine: Machine) -> None:
    simulation = machine(count=2)
    simulation.set_resets(renumbers=True)
    assert by_pynvml(simulation, 1) == [0, 0, 1, 1]

    simulation.reboot()

    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMinorNumber(handle(0)) == 0
    nodes = sorted(node.name for node in simulation.host_root.glob("dev/nvidia?"))
    assert nodes == ["nvidia0", "nvidia1"]
