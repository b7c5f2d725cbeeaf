# SPDX-License-Identifier: Apache-2.0
"""A process that loads the C library is to the machine what one of our own is, and never harmed."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path

import pynvml as nv
import pytest

from discovery.nvml_abi.entry_point_table import TABLE
from simulator.clibrary.compiler import place_library
from simulator.clibrary.exports import exports
from simulator.clibrary.machine_server import MachineServer
from simulator.driver.calling_process import CRASH_STATUS
from simulator.simulation import Crash, Hang, Return
from tests import machines
from tests.agent.agent_process import SOON, until
from tests.controlplane.lifetime import end_with_parent
from tests.simulator.clibrary.serving import CODE_OF, NAMES, Serve, Served, run_python

FIRST, SECOND = machines.gpu(0), machines.gpu(1)

STEP_BY_STEP = (
    CODE_OF
    + """
nv.nvmlInit()
gpu = nv.nvmlDeviceGetHandleByIndex(0)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
)
"""Evaluates an expression a line, and prints a line for each."""


class Caller:
    """Another process with NVML initialised, which does what it is sent."""

    def __init__(self, served: Served) -> None:
        self.process = subprocess.Popen(
            served.command(STEP_BY_STEP),
            env=served.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent(),
        )

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, expression: str) -> None:
        """Have it evaluate something, and do not wait for the answer."""
        assert self.process.stdin
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, expression: str) -> str:
        """What an expression is there."""
        self.send(expression)
        return self.answer()


@pytest.fixture
def served(tmp_path: Path, serve: Serve) -> Served:
    """Two GPUs, served."""
    return serve(machines.simulation(tmp_path / "machine"))


def test_another_process_reads_names_and_uuids(served: Served) -> None:
    with machines.session(served.simulation) as handle:
        gpus = [handle(at) for at in range(2)]
        ours = [(nv.nvmlDeviceGetName(gpu), nv.nvmlDeviceGetUUID(gpu)) for gpu in gpus]

    done = served.run(NAMES)

    assert (done.stdout.strip(), done.stderr) == (str(ours), "")


def test_a_process_counts_as_a_client_while_nvml_is_open(served: Served) -> None:
    """As ours does: from its first init to its last shutdown, or its end."""
    simulation = served.simulation
    with Caller(served) as caller:
        assert caller.ask("0") == "0"
        assert [client.pid for client in simulation.state.clients] == [caller.process.pid]

        caller.ask("nv.nvmlShutdown()")
        assert simulation.clients() == 0

        caller.ask("nv.nvmlInit()")
        assert simulation.clients() == 1
        caller.process.kill()
        until(lambda: simulation.state.clients == ())


def test_sessions_of_two_processes_are_apart(served: Served) -> None:
    """One's shutdown is not the other's."""
    with Caller(served) as one, Caller(served) as other:
        assert (one.ask("0"), other.ask("0")) == ("0", "0")
        assert served.simulation.clients() == 2

        one.ask("nv.nvmlShutdown()")

        code = one.ask("code_of(lambda: nv.nvmlDeviceGetName(gpu))")
        assert code == str(nv.NVML_ERROR_UNINITIALIZED)
        assert other.ask("nv.nvmlDeviceGetName(gpu)") == "NVIDIA Small"


def test_a_forked_child_has_no_session_and_leaves_its_parents_alone(served: Served) -> None:
    done = served.run(
        CODE_OF
        + """
import os
nv.nvmlInit()
gpu = nv.nvmlDeviceGetHandleByIndex(0)
child = os.fork()
if not child:
    os._exit(code_of(nv.nvmlDeviceGetCount))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), nv.nvmlDeviceGetName(gpu))
"""
    )

    assert done.stdout.strip() == f"{nv.NVML_ERROR_UNINITIALIZED} NVIDIA Small", done.stderr


def test_threads_call_at_the_same_time(served: Served) -> None:
    """Each gets its own answers, and one that hangs does not stop the others."""
    served.simulation.fault(Hang(), "nvmlDeviceGetName", bus_id=SECOND.bus_id)

    done = served.run(
        """
import threading
import pynvml as nv
nv.nvmlInit()
one, two = (nv.nvmlDeviceGetHandleByIndex(at) for at in range(2))
threading.Thread(target=nv.nvmlDeviceGetName, args=[two], daemon=True).start()
wrong = []
def ask(gpu, index):
    wrong.extend(1 for _ in range(200) if nv.nvmlDeviceGetIndex(gpu) != index)
threads = [threading.Thread(target=ask, args=[(one, two)[n % 2], n % 2]) for n in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(wrong, flush=True)
import os
os._exit(0)
"""
    )

    assert done.stdout.strip() == "[]", done.stderr


def test_a_call_hangs_until_its_fault_is_cleared(served: Served) -> None:
    fault = served.simulation.fault(Hang(), "nvmlDeviceGetName")
    with Caller(served) as caller:
        heard = list[str]()
        caller.send("nv.nvmlDeviceGetName(gpu)")
        waiting = threading.Thread(target=lambda: heard.append(caller.answer()))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()

        served.simulation.clear(fault)

        waiting.join(SOON)
        assert heard == ["NVIDIA Small"]


def test_a_process_that_is_killed_in_a_call_leaves_nothing(served: Served) -> None:
    """Neither a client nor a thread that waits with the fault or for an event."""
    served.simulation.fault(Hang(), "nvmlDeviceGetName")
    before = calls_under_way()
    with Caller(served) as one, Caller(served) as other:
        one.send("nv.nvmlDeviceGetName(gpu)")
        other.send("nv.nvmlEventSetWait_v2(nv.nvmlEventSetCreate(), 0xFFFFFFFF)")
        until(lambda: len(calls_under_way() - before) == 2)

    until(lambda: not calls_under_way() - before)
    assert served.simulation.state.clients == ()


def test_a_call_that_hangs_beyond_signals_leaves_its_process_deaf(served: Served) -> None:
    """SIGTERM is ignored while it hangs, and ends the process again afterwards."""
    served.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetName")
    with Caller(served) as caller:
        caller.send("nv.nvmlDeviceGetName(gpu)")
        until(lambda: _ignores_sigterm(caller.process.pid))
        caller.process.send_signal(signal.SIGTERM)
        served.simulation.clear()
        assert caller.answer() == "NVIDIA Small"

        caller.process.send_signal(signal.SIGTERM)

        assert caller.process.wait(SOON) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("crash", "status"),
    [(Crash(ending="kill", prints="oh"), -signal.SIGKILL), (Crash(ending="exit"), CRASH_STATUS)],
)
def test_a_crash_ends_the_caller_and_not_the_server(
    served: Served, crash: Crash, status: int
) -> None:
    served.simulation.fault(crash, "nvmlDeviceGetName", times=1)
    with Caller(served) as caller:
        caller.send("nv.nvmlDeviceGetName(gpu)")

        assert caller.process.wait(SOON) == status
        assert caller.process.stderr
        assert caller.process.stderr.read() == crash.prints
    assert "NVIDIA Small" in served.run(NAMES).stdout


def test_faults_and_the_call_log_are_the_machines(served: Served) -> None:
    """A GPU that is lost is lost for all, and calls of all are counted."""
    served.simulation.fault(
        Return(code=nv.NVML_ERROR_GPU_IS_LOST), "nvmlDeviceGetName", bus_id=SECOND.bus_id
    )
    served.simulation.log_calls()

    done = served.run(
        CODE_OF
        + """
nv.nvmlInit()
gpus = [nv.nvmlDeviceGetHandleByIndex(at) for at in range(2)]
print([code_of(lambda: nv.nvmlDeviceGetName(gpu)) for gpu in gpus])
"""
    )

    assert done.stdout.strip() == f"[0, {nv.NVML_ERROR_GPU_IS_LOST}]"
    assert served.simulation.calls()["nvmlDeviceGetName", SECOND.bus_id] == 1


def test_an_xid_is_delivered_to_the_process_that_waits(served: Served) -> None:
    served.simulation.xid(FIRST.bus_id, 79)

    done = served.run(
        """
import pynvml as nv
nv.nvmlInit()
events = nv.nvmlEventSetCreate()
gpu = nv.nvmlDeviceGetHandleByIndex(0)
nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
event = nv.nvmlEventSetWait_v2(events, 1000)
print(event.eventData, nv.nvmlDeviceGetIndex(event.device))
"""
    )

    assert done.stdout.strip() == "79 0", done.stderr


def test_the_end_of_the_server_is_an_error_and_no_crash(served: Served) -> None:
    """Calls under way, later calls and a new init fail; when a server is back, init works."""
    served.simulation.fault(Hang(), "nvmlDeviceGetSerial")
    served.simulation.log_calls()
    unknown, not_loaded = nv.NVML_ERROR_UNKNOWN, nv.NVML_ERROR_DRIVER_NOT_LOADED
    with Caller(served) as caller:
        caller.send("code_of(lambda: nv.nvmlDeviceGetSerial(gpu))")
        until(lambda: ("nvmlDeviceGetSerial", FIRST.bus_id) in served.simulation.calls())

        served.server.close()

        assert caller.answer() == str(unknown)
        assert caller.ask("code_of(lambda: nv.nvmlDeviceGetName(gpu))") == str(unknown)
        assert caller.ask("code_of(nv.nvmlInit)") == str(not_loaded)
        served.simulation.clear()
        back = MachineServer(served.simulation, served.folder)
        back.start()
        try:
            assert caller.ask("code_of(nv.nvmlDeviceGetCount)") == str(nv.NVML_ERROR_UNINITIALIZED)
            assert caller.ask("code_of(nv.nvmlInit)") == "0"
            assert caller.ask("nv.nvmlDeviceGetName(nv.nvmlDeviceGetHandleByIndex(0))") == (
                "NVIDIA Small"
            )
        finally:
            back.close()


def test_without_a_server_init_fails_as_without_a_driver(tmp_path: Path) -> None:
    """Error texts are there all the same, and stay where they are."""
    place_library(tmp_path)
    code = CODE_OF + (
        """
import ctypes
print(code_of(nv.nvmlInit))
text = ctypes.CDLL("libnvidia-ml.so.1").nvmlErrorString
text.restype = ctypes.c_void_p
print(ctypes.string_at(text(15)).decode(), text(15) == text(15))
"""
    )

    done = run_python(tmp_path, code)

    assert done.stdout.splitlines() == [
        str(nv.NVML_ERROR_DRIVER_NOT_LOADED),
        "Gpu Is Lost True",
    ], done.stderr


def test_error_texts_of_a_machine_stay_where_they_are(served: Served) -> None:
    """Callers keep the pointers."""
    done = served.run(
        """
import ctypes
text = ctypes.CDLL("libnvidia-ml.so.1").nvmlErrorString
text.restype = ctypes.c_void_p
first = text(15)
for _ in range(100): text(2)
print(ctypes.string_at(first).decode(), first == text(15))
"""
    )

    assert done.stdout.strip() == "Gpu Is Lost True", done.stderr


def test_every_function_of_nvml_is_there(served: Served) -> None:
    """A program that is linked to one that the machine does not have gets a code, and no end.

    One that a test makes a GPU answer is answered.
    """
    others = [export.name for export in exports() if export.name not in TABLE]
    assert len(others) > 200
    served.simulation.set_readings(FIRST.bus_id, numbers={"nvmlDeviceGetNumGpuCores": 6912})

    done = served.run(
        CODE_OF
        + """
import ctypes
nv.nvmlInit()
library = ctypes.CDLL("libnvidia-ml.so.1")
print([n for n in sys.argv[1:] if getattr(library, n)() != 13])
gpus = [nv.nvmlDeviceGetHandleByIndex(at) for at in range(2)]
print(nv.nvmlDeviceGetNumGpuCores(gpus[0]), code_of(lambda: nv.nvmlDeviceGetNumGpuCores(gpus[1])))
""",
        *(name for name in others if name != "nvmlDeviceGetNumGpuCores"),
    )

    assert done.stdout.splitlines() == ["[]", f"6912 {nv.NVML_ERROR_NOT_SUPPORTED}"], done.stderr


def test_a_socket_with_a_long_path_is_reached(tmp_path: Path) -> None:
    """An address has room for 107 bytes; folders are often deeper."""
    folder = tmp_path / ("deep" * 30)
    place_library(folder)
    server = MachineServer(machines.simulation(tmp_path / "machine"), folder)
    server.start()
    try:
        done = run_python(folder, NAMES)
    finally:
        server.close()

    assert "NVIDIA Small" in done.stdout, done.stderr


def calls_under_way() -> set[threading.Thread]:
    """The server's threads, one for each connection."""
    return {each for each in threading.enumerate() if each.name == "nvml-caller"}


def _ignores_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    return bool(ignored & (1 << (signal.SIGTERM - 1)))
