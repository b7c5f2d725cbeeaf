# SPDX-License-Identifier: Apache-2.0
"""The simulated nvidia-smi, started by its path in the driver root: exit codes and effects.

Exit codes are typed from nvidia-smi(1), "RETURN VALUE"; words of messages from the publications
that stand next to them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pynvml as nv
import pytest

from simulator.description.machine_catalog import load_machine
from simulator.driver import clients
from simulator.driver.calling_process import ThisProcess
from simulator.simulation import Return, Simulation
from simulator.smi.smi_actions import run_smi
from simulator.smi.smi_server import served_smi
from tests import machines
from tests.agent.agent_process import until
from tests.controlplane.lifetime import end_with_parent
from tests.simulator.mig.conftest import machine  # noqa: F401  # a fixture
from tests.simulator.mig.mig_calls import create, cut, layout

Machine = Callable[..., Simulation]
FIRST, SECOND = machines.gpu(0).bus_id, machines.gpu(1).bus_id
H100 = "h100-sxm5-80gb"


@contextmanager
def started(simulation: Simulation, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program, with these arguments, while its machine is served."""
    with (
        served_smi(simulation) as program,
        subprocess.Popen(
            [program, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent(),
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def run(simulation: Simulation, *arguments: str) -> tuple[int, str]:
    """Exit code and output."""
    with started(simulation, *arguments) as process:
        text, _ = process.communicate()
    return process.returncode, text


def modes(simulation: Simulation) -> list[tuple[bool, bool]]:
    """Current and pending mode of each GPU."""
    return [(gpu.mig, gpu.mig_pending) for gpu in simulation.state.gpus.values()]


def test_a_reset_is_of_the_named_gpus_alone(machine: Machine) -> None:  # noqa: F811
    """The other's instances stay. Words: NVIDIA/NVSentinel#1690."""
    simulation = machine(count=2, mig=True)
    with machines.session(simulation) as handle:
        for index in range(2):
            cut(create(handle(index), 19), 0)

    code, text = run(simulation, "--gpu-reset", "-i", FIRST)

    assert (code, text) == (0, "GPU 00000000:10:00.0 was successfully reset.\n")
    with machines.session(simulation) as handle:
        assert nv.nvmlDeviceGetMigMode(handle(0)) == [1, 1]
        assert (layout(handle(0)), len(layout(handle(1)))) == ([], 1)


@pytest.mark.parametrize("model", ["a100-sxm4-40gb", H100])
def test_a_reset_keeps_the_mode_on_all_models(machine: Machine, model: str) -> None:  # noqa: F811
    """Source: MIG user guide, Enable MIG Mode; on Hopper the driver stays resident."""
    simulation = machine(model, mig=True)

    assert run(simulation, "-r", "-i", "0")[0] == 0
    assert modes(simulation) == [(True, True)]


@pytest.mark.parametrize(("result", "left"), [("loses", 0), ("fails", 1)])
def test_instances_are_gone_with_a_lost_gpu_and_stay_where_the_reset_fails(
    machine: Machine,  # noqa: F811
    result: str,
    left: int,
) -> None:
    """In the driver's files too."""
    simulation = machine(mig=True)
    with machines.session(simulation) as handle:
        cut(create(handle(0), 19), 0)
    simulation.set_resets(result=result)

    run(simulation, "-r")

    files = simulation.host_root / "proc/driver/nvidia/capabilities/gpu0/mig"
    assert len(simulation.state.gpus[FIRST].instances) == left
    assert len(list(files.glob("gi*"))) == left


def a_program(simulation: Simulation) -> None:
    """A CUDA program."""
    simulation.add_process(FIRST, 71)


def a_hidden_process(simulation: Simulation) -> None:
    """One that no list shows, as NVIDIA/gpu-operator#118 found nvidia-persistenced."""
    simulation.add_process(FIRST, 72, name="nvidia-persistenced", kind="client")


def an_exporter(simulation: Simulation) -> None:
    """Another process has NVML open."""
    simulation.edit(clients.with_client(clients.client_of(os.getppid())))


@pytest.mark.parametrize("user", [a_program, a_hidden_process, an_exporter])
def test_what_is_in_use_is_not_reset(
    machine: Machine,  # noqa: F811
    user: Callable[[Simulation], None],
) -> None:
    """Nor is the GPU next to it. Exit code and words: NVIDIA/mig-parted#181, NVSentinel#1690."""
    simulation = machine(count=2, mig=True)
    with machines.session(simulation) as handle:
        cut(create(handle(1), 19), 0)
        processes = nv.nvmlDeviceGetComputeRunningProcesses(handle(0))
    user(simulation)

    code, text = run(simulation, "--gpu-reset", "-i", f"{FIRST},{SECOND}")

    assert code == 255
    assert "could not be reset:\n  GPU 00000000:10:00.0: In use by another client\n" in text
    assert "currently being used by one or more other processes" in text
    with machines.session(simulation) as handle:
        assert len(layout(handle(1))) == 1
    if user is a_hidden_process:
        with machines.session(simulation) as handle:
            assert len(nv.nvmlDeviceGetComputeRunningProcesses(handle(0))) == len(processes) == 0
            assert nv.nvmlDeviceGetMemoryInfo(handle(0), version=nv.nvmlMemory_v2).used == 0


def test_a_process_that_has_ended_is_in_nobodys_way(machine: Machine) -> None:  # noqa: F811
    simulation = machine()
    process = subprocess.Popen(["sleep", "600"], preexec_fn=end_with_parent())
    simulation.use_by(process.pid, FIRST, kind="client")
    assert run(simulation, "-r")[0] == 255
    process.kill()
    process.wait()

    assert run(simulation, "-r")[0] == 0


Setting = Callable[[Simulation], object]


def as_it_is(_: Simulation) -> None:
    """An idle GPU."""


def it_fails(simulation: Simulation) -> None:
    """A reset fails."""
    simulation.set_resets(result="fails")


def it_loses_the_gpu(simulation: Simulation) -> None:
    """A reset does."""
    simulation.set_resets(result="loses")


def it_is_lost(simulation: Simulation) -> None:
    """The GPU is, before the reset."""
    simulation.fault(Return(code=15), bus_id=FIRST)


def nobody_is_root(simulation: Simulation) -> None:
    """The right is lacking."""
    simulation.revoke("root")


def no_driver_is_loaded(simulation: Simulation) -> None:
    """The kernel module is not there."""
    simulation.set_driver("not-loaded")


@pytest.mark.parametrize(
    ("setting", "arguments", "code", "words"),
    [
        (
            lambda simulation: simulation.set_resets(result="fails"),
            "-r -i 0",
            255,
            "could not be reset",
        ),
        (it_loses_the_gpu, "-r -i 0", 15, "GPU is lost"),
        (
            lambda simulation: simulation.fault(Return(code=15), bus_id=FIRST),
            "-r -i 0",
            15,
            "GPU is lost",
        ),
        (nobody_is_root, "-r -i 0", 4, "Insufficient Permissions"),
        (nobody_is_root, "-mig 1", 4, "Insufficient Permissions"),
        (no_driver_is_loaded, "-r -i 0", 9, "driver"),
        (as_it_is, "-r -i 7", 6, "No devices were found"),
        (as_it_is, "-r -i 0,0000:99:00.0", 6, "No devices were found"),
        (as_it_is, "--frobnicate", 2, "Invalid"),
        (as_it_is, "-r -i 00000000:10:00.0", 0, "was successfully reset"),
    ],
)
def test_exit_codes_are_those_of_the_manual(
    machine: Machine,  # noqa: F811
    setting: Setting,
    arguments: str,
    code: int,
    words: str,
) -> None:
    simulation = machine()
    setting(simulation)

    ended, text = run(simulation, *arguments.split())

    assert (ended, words in text) == (code, True), text


def test_in_a_virtual_machine_nothing_is_reset(machine: Machine) -> None:  # noqa: F811
    """The MIG user guide's example of a GPU that is passed through."""
    simulation = machine(virtualization=1)

    pending = run(simulation, "-i", "0", "-mig", "1")
    reset = run(simulation, "--gpu-reset")

    assert pending[0] == 0
    assert "MIG mode is in pending enable state for GPU 00000000:10:00.0:" in pending[1]
    assert reset == (3, "Resetting GPU 00000000:10:00.0 is not supported.\n")
    assert modes(simulation) == [(False, True)]


def test_the_mode_is_changed_as_by_any_program(machine: Machine) -> None:  # noqa: F811
    """Words: MIG user guide. In use it is a warning, and the exit code is 0."""
    simulation = machine(count=2)
    simulation.add_process(SECOND, 71)

    code, text = run(simulation, "-mig", "1")

    assert code == 0
    lines = text.splitlines()
    assert lines[0] == "Enabled MIG Mode for GPU 00000000:10:00.0"
    assert lines[1] == (
        "Warning: MIG mode is in pending enable state for GPU 00000000:11:00.0:"
        "In use by another client"
    )
    assert lines[-1] == "All done."
    assert modes(simulation) == [(True, True), (False, True)]
    assert simulation.clients() == 0


def test_gpus_without_mig_are_warned_of(machine: Machine) -> None:  # noqa: F811
    code, text = run(machine("l40s"), "-mig", "1")

    assert code == 0
    assert (
        text.splitlines()[0] == "Unable to enable MIG Mode for GPU 00000000:10:00.0: Not Supported"
    )


def test_a_reset_takes_its_time_and_outlives_the_program(machine: Machine) -> None:  # noqa: F811
    """By the machine's clock, which a test sets."""
    simulation = machine(mig=True)
    simulation.set_resets(seconds=20.0)
    now = [5000.0]
    simulation.clock = lambda: now[0]
    with started(simulation, "-r", "-i", FIRST) as process:
        until(lambda: simulation.state.gpus[FIRST].reset is not None)
        now[0] += 19.0
        assert run_smi(simulation, ("-r",), ThisProcess()).code == 15
        now[0] += 2.0
        assert process.wait() == 0

    with started(simulation, "-r", "-i", FIRST):
        until(lambda: simulation.state.gpus[FIRST].reset is not None)
    assert simulation.state.gpus[FIRST].reset is not None
    now[0] += 21.0
    assert simulation.state.gpus[FIRST].reset is None


def test_one_that_never_ends_is_left_when_the_program_is_killed(
    machine: Machine,  # noqa: F811
) -> None:
    simulation = machine()
    simulation.set_resets(result="hangs")
    with started(simulation, "-r") as process:
        until(lambda: simulation.state.gpus[FIRST].reset is not None)
        process.kill()
        process.wait()
    assert run(simulation, "-r")[0] == 15

    simulation.reboot()
    simulation.set_resets(result="done")

    assert run(simulation, "-i", "0", "-mig", "1")[1].startswith("Enabled MIG Mode")


def test_without_a_server_there_is_no_driver(machine: Machine, tmp_path: Path) -> None:  # noqa: F811
    """A copy that outlived its machine."""
    simulation = machine()
    with served_smi(simulation) as program:
        copy = tmp_path / "nvidia-smi"
        copy.write_bytes(program.read_bytes())
        copy.chmod(0o755)
    assert not program.exists()

    done = subprocess.run([copy, "-r"], capture_output=True, text=True, check=False)

    assert (done.returncode, "driver" in done.stdout) == (9, True)


# GPUs that NVLink joins: nvidia-smi(1), --gpu-reset; Fabric Manager user guide, "GPU VM System
# Reset Capabilities and Limitations"

ONE, ALL = ("-r", "-i", "0"), ("-r",)


@pytest.mark.parametrize(
    ("name", "fabric_manager", "arguments", "code"),
    [
        ("hgx-16", True, ONE, 255),  # NVSwitch, before Ampere: all in one command
        ("hgx-16", False, ONE, 255),
        ("hgx-16", True, ALL, 0),
        ("dgx-a100", True, ONE, 0),  # NVSwitch, Ampere: each alone
        ("dgx-a100", False, ONE, 255),
        ("dgx-a100", False, ALL, 0),
        ("hgx-h100", True, ONE, 0),
        ("hgx-h100", False, ONE, 0),  # from Hopper on without Fabric Manager too
        ("dgx1-v100", None, ONE, 255),  # direct links, before Ampere
        ("dgx1-v100", None, ALL, 0),
        ("a100-pcie-pairs", None, ONE, 0),  # direct links, Ampere
        ("t4", None, ONE, 0),  # no links at all
    ],
)
def test_joined_gpus_are_reset_as_the_manual_says(
    tmp_path: Path, name: str, fabric_manager: bool | None, arguments: Sequence[str], code: int
) -> None:
    simulation = Simulation.create(name, tmp_path)
    simulation.set_resets(fabric_manager=fabric_manager)

    answer = run_smi(simulation, arguments, ThisProcess())

    assert answer.code == code, answer.text


def test_the_gpus_that_are_missing_are_named(tmp_path: Path) -> None:
    """Those of a DGX-1 that are linked to the first one, and no others."""
    simulation = Simulation.create("dgx1-v100", tmp_path)
    description = load_machine("dgx1-v100")
    linked = {
        link.b if link.a == 0 else link.a for link in description.direct if 0 in (link.a, link.b)
    }

    text = run_smi(simulation, ("-r", "-i", "0"), ThisProcess()).text

    for place, gpu in enumerate(description.gpus):
        assert (gpu.bus_id.upper() in text) == (place in linked), place
