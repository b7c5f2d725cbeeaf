# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig selftest``: layouts are tried on one idle GPU, and the one from before comes back.

Each test that gets so far runs a worker process on a simulated machine's state file.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pynvml
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from actuator.journal import CHANGE, Journal
from cli import agreement
from cli.failures import REFUSED, UNDONE, UNFINISHED, CommandFailure
from cli.main import main
from cli.mig.selftest.selftest_target import require_cordoned
from discovery.mig_state import MigGpu
from discovery.reader.protocol import Start
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Crash, Delay, Return
from simulator.state.machine_state import MachineState
from tests.actuator.simulated_node import A100, H100, SimulatedNode, node
from tests.agent.agent_process import until
from tests.cli.mig.mig_process import CREATE, ended, journal, running

A30 = "a30"
FIRST, SECOND = "0000:10:00.0", "0000:11:00.0"
DESTROY = "nvmlGpuInstanceDestroy"
TWO = (
    MigInstanceSpec(profile="2g.12gb", start=0, id=1),
    MigInstanceSpec(profile="1g.6gb", start=3, id=6),
)


@pytest.fixture
def on(tmp_path: Path) -> SimulatedNode:
    """One A30 with two instances."""
    return node(tmp_path, *TWO, model=A30)


def run(on: SimulatedNode, *arguments: str, answer: str | None = None) -> Result:
    simulated = ("--simulate", str(on.simulation.state_file))
    return CliRunner().invoke(main, ("mig", "selftest", *arguments, *simulated), input=answer)


def places(gpu: MigGpu) -> set[tuple[str, int]]:
    return {(one.profile, one.start) for one in gpu.instances}


def test_every_profile_is_tried_at_every_place_and_all_is_as_before(
    on: SimulatedNode, tmp_path: Path
) -> None:
    """With the same MIG devices; the report says what was tried, on what, and how long it took."""
    before = on.gpus()
    file = tmp_path / "report.json"

    result = run(on, "--yes", "--report", str(file))

    assert result.exit_code == 0, result.output
    assert "GPU 0 (NVIDIA A30), VBIOS " in result.stdout
    assert "With --yes: this machine is in no cluster; or its node is cordoned" in result.stdout
    assert "ok      4 x 1g.6gb (" in result.stdout
    assert "Passed: all " in result.stdout
    assert on.gpus() == before
    assert ended(on) == [("a self-test", "rolled-back")]
    report = json.loads(file.read_text("utf-8"))
    assert (report["passed"], report["outcome"], report["simulated"]) == (True, "rolled-back", True)
    assert report["gpu"]["model"] == "NVIDIA A30"
    assert report["gpu"]["vbios"] == on.simulation.state.models[A30].vbios
    assert report["driver"]["version"] is not None
    tried = {
        (one["profile"], one["start"])
        for layout in report["layouts"]
        for one in layout["desired"]["instances"]
    }
    offered = {(one["name"], at) for one in report["profiles"] for at in one["starts"]}
    assert len(offered) > 8
    assert offered <= tried
    assert all(layout["reached"] for layout in report["layouts"])
    assert any(layout["kept"] for layout in report["layouts"])
    steps = [step for layout in report["layouts"] for step in layout["steps"]]
    assert {step["step"] for step in steps} == {
        *("CreateInstance", "CreateCompute", "DestroyCompute", "DestroyInstance")
    }
    assert all(step["seconds"] > 0 for step in steps)
    text = file.read_text("utf-8")
    assert all(name not in text for name in (on.uuid(), "MIG-", FIRST))


def boasting(state: MachineState) -> MachineState:
    """An A30 whose driver has a profile less than its model, and another id."""
    model = state.models[A30]
    kept = tuple(
        replace(one, id=77) if one.name == "1g.6gb" else one
        for one in model.mig
        if one.name != "2g.12gb+me"
    )
    return replace(state, models={**state.models, A30: replace(model, mig=kept)})


def test_what_the_driver_refuses_and_what_it_offers_otherwise_is_in_the_report(
    on: SimulatedNode,
) -> None:
    before = on.gpus()[0]
    on.simulation.edit(boasting)
    on.simulation.fault(Return(code=pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES), CREATE, times=1)

    result = run(on, "--yes", "-o", "json")

    assert result.exit_code == UNDONE, result.output
    report = json.loads(result.stdout)
    assert (report["passed"], report["outcome"]) == (False, "rolled-back")
    failed = [one for one in report["layouts"] if not one["reached"]]
    assert len(failed) == 1
    assert "INSUFFICIENT" in failed[0]["failure"].upper()
    assert [step["failure"] for step in failed[0]["steps"] if step["failure"]]
    offered = {one["name"]: one["id"] for one in report["profiles"]}
    assert offered["1g.6gb"] == 77
    assert "2g.12gb+me" not in offered
    assert places(on.gpus()[0]) == places(before)


def test_a_worker_that_dies_leaves_a_report_and_restore_brings_the_layout_from_before(
    on: SimulatedNode, tmp_path: Path
) -> None:
    before = on.gpus()[0]
    on.simulation.fault(Crash(ending="kill"), CREATE, times=1)
    file = tmp_path / "report.json"

    died = run(on, "--yes", "--report", str(file))

    assert died.exit_code == UNFINISHED
    assert "gpuscape mig restore goes on from there" in died.stderr
    report = json.loads(file.read_text("utf-8"))
    assert (report["passed"], report["outcome"]) == (False, None)
    assert "gave no result" in report["reason"]
    assert [one["name"] for one in report["layouts"]] == ["MIG on, empty"]
    again = run(on, "--yes")
    assert (again.exit_code, again.stdout) == (REFUSED, "")
    assert "the change to a self-test" in again.stderr
    state = str(on.simulation.state_file)
    restored = CliRunner().invoke(main, ("mig", "restore", "--simulate", state))
    assert restored.exit_code == 0
    assert places(on.gpus()[0]) == places(before)
    assert ended(on) == [("a self-test", "rolled-back")]


@pytest.mark.long
def test_where_the_way_back_fails_it_is_held(on: SimulatedNode) -> None:
    before = on.gpus()[0]
    on.simulation.fault(Return(code=pynvml.NVML_ERROR_UNKNOWN), CREATE)

    result = run(on, "--yes")

    assert result.exit_code == UNFINISHED
    assert "\nStuck: the way back failed: " in result.stdout
    assert f"then run gpuscape mig restore --journal {journal(on)}" in result.stdout
    on.simulation.clear()
    state = str(on.simulation.state_file)
    assert CliRunner().invoke(main, ("mig", "restore", "--simulate", state)).exit_code == 0
    assert places(on.gpus()[0]) == places(before)


# which GPU


def test_the_first_idle_gpu_is_taken_one_without_instances_before_others(tmp_path: Path) -> None:
    """Not the one that a program uses; the worker then finds another with its file open."""
    on = node(tmp_path, *TWO, model=A30, count=3)
    on.simulation.add_process(SECOND, 71)
    with device_open(on, 2):
        result = run(on, "--yes")
    assert result.exit_code == REFUSED
    assert result.stdout.startswith("GPU 2 (NVIDIA A30)")
    assert f"Nothing was changed: the GPU is in use: process {os.getpid()}" in result.stdout
    assert ended(on) == []


@contextmanager
def device_open(on: SimulatedNode, minor: int) -> Iterator[None]:
    """This process is what another program would be: the worker looks at all but itself."""
    with (on.simulation.host_root / f"dev/nvidia{minor}").open("rb"):
        yield


@pytest.mark.parametrize(
    ("model", "mig", "busy", "words"),
    [
        (A30, False, False, "MIG is off, and goes on by a reset, which is yours to do: nvidia-smi"),
        (A30, True, True, "GPU 0: in use by process 71"),
        ("t4", False, False, "GPU 0: Tesla T4 has no MIG"),
    ],
)
def test_a_gpu_that_cannot_be_tested_is_refused_with_the_reason(
    tmp_path: Path, model: str, mig: bool, busy: bool, words: str
) -> None:
    on = node(tmp_path, model=model, mig=mig)
    if busy:
        on.simulation.add_process(FIRST, 71)
    result = run(on, *(("--gpu", "0") if busy else ()), "--yes")
    assert (result.exit_code, result.stdout) == (REFUSED, "")
    assert words in result.stderr
    assert not journal(on).exists()


def test_a_mode_that_waits_for_a_reset_is_refused(tmp_path: Path) -> None:
    on = node(tmp_path, model=A100)
    on.simulation.edit(pending_off)
    result = run(on, "--yes")
    assert result.exit_code == REFUSED
    assert "a change of its MIG mode waits for a reset" in result.stderr


def pending_off(state: MachineState) -> MachineState:
    changed = replace(state.gpus[FIRST], mig_pending=False)
    return replace(state, gpus={**state.gpus, FIRST: changed})


# who has to agree


def test_without_a_yes_nothing_is_done(on: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    before = on.found()
    nobody = run(on)
    assert nobody.exit_code == 2
    assert "add --yes, which confirms: this machine is in no cluster" in nobody.stderr
    monkeypatch.setattr(agreement, "is_interactive", lambda: True)
    refused = run(on, answer="n\n")
    assert refused.exit_code == REFUSED
    assert "You confirm: this machine is in no cluster; or its node is cordoned" in refused.stdout
    assert refused.stdout.endswith("Nothing was changed.\n")
    assert run(on, "-o", "json", answer="y\n").exit_code == 2
    assert on.found() == before
    assert not journal(on).exists()


def test_bad_words_are_refused_first(on: SimulatedNode, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    for arguments, words in (
        (("--gpu", "9"), "there is no GPU 9"),
        (("--report", str(tmp_path / "there")), "name a file that is not there"),
        (("--report", str(tmp_path / "no/where")), "in a folder that is"),
    ):
        result = run(on, "--yes", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr


def test_whoever_has_the_lock_or_serves_the_socket_is_in_the_way(
    on: SimulatedNode, tmp_path: Path
) -> None:
    before = on.found()
    with Journal(journal(on)):
        locked = run(on, "--yes")
    assert locked.exit_code == REFUSED
    assert "another process changes MIG on this node" in locked.stderr
    path = tmp_path / "a.sock"
    with answering(path):
        served = run(on, "--yes", "--socket", str(path))
    assert served.exit_code == REFUSED
    assert f"an actuator serves {path}" in served.stderr
    assert on.found() == before


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """Somebody who answers one line with a line."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(b"{}\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(10)


# the node


@contextmanager
def cluster(folder: Path, **nodes: dict[str, Any]) -> Iterator[Path]:
    """An API server that has these Nodes and nothing else; its kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/api/v1/nodes/")
            node = nodes.get(name)
            if node is None:
                answer = {"kind": "Status", "reason": "NotFound", "code": 404, "message": "no"}
            else:
                answer = {"kind": "Node", "metadata": {"name": name}} | node
            content = json.dumps(answer).encode()
            self.send_response(404 if node is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [
                {"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        file = folder / "kubeconfig"
        file.write_text(json.dumps(config))
        yield file
        server.shutdown()
        thread.join(10)


def test_a_node_that_is_not_cordoned_is_refused(tmp_path: Path) -> None:
    """One that is there and cordoned comes as far as the question."""
    on = node(tmp_path, model=A30)
    cordoned: dict[str, Any] = {"spec": {"unschedulable": True}}
    with cluster(tmp_path, worker={"spec": {}}, other=cordoned) as kubeconfig:
        for name, code, words in (
            ("worker", REFUSED, "node worker is not cordoned: run kubectl cordon worker"),
            ("nobody", 2, "the cluster has no node nobody"),
            ("other", 2, "add --yes, which confirms: node other is cordoned"),
        ):
            result = run(on, "--node", name, "--kubeconfig", str(kubeconfig))
            assert result.exit_code == code, result.output
            assert words in result.stderr
    gone = run(on, "--node", "worker", "--kubeconfig", str(kubeconfig))
    assert gone.exit_code == 4
    assert not journal(on).exists()


def test_a_cordoned_node_that_is_another_machine_is_refused(tmp_path: Path) -> None:
    """By the boot id, which the kubelet reports."""
    own = tmp_path / "proc/sys/kernel/random/boot_id"
    own.parent.mkdir(parents=True)
    own.write_text("this-boot\n")
    here = Start(host_root=str(tmp_path))
    nodes: dict[str, dict[str, Any]] = {
        name: {"spec": {"unschedulable": True}, "status": {"nodeInfo": {"bootID": boot}}}
        for name, boot in (("this", "this-boot"), ("other", "other-boot"))
    }
    with cluster(tmp_path, **nodes) as kubeconfig:
        require_cordoned("this", kubeconfig, here)
        with pytest.raises(CommandFailure, match="node other is another machine") as refused:
            require_cordoned("other", kubeconfig, here)
    assert refused.value.exit_code == REFUSED


# Ctrl-C


@contextmanager
def begun(on: SimulatedNode, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A self-test in the middle of a slow step; its worker ends by itself within seconds."""
    on.simulation.fault(Delay(seconds=2), CREATE, times=1)
    with running(
        on, "selftest", "--yes", *options, reached=lambda: on.found() == frozenset()
    ) as process:
        yield process


def test_ctrl_c_brings_the_layout_from_before(on: SimulatedNode) -> None:
    """After the layout that is being made."""
    before = on.gpus()
    with begun(on, "-o", "json") as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == UNDONE, errors
    assert "the previous layout is restored" in errors
    report = json.loads(output)
    assert (report["outcome"], report["passed"]) == ("rolled-back", False)
    assert report["reason"] == "no further layout was to be tried"
    assert len(report["layouts"]) < 4
    assert on.gpus() == before


def test_a_mode_that_was_off_is_off_again(tmp_path: Path) -> None:
    """Where it goes on without a reset; as soon as the command is killed, the worker goes back."""
    on = node(tmp_path, model=H100, mig=False)
    before = on.gpus()
    on.simulation.fault(Delay(seconds=2), CREATE, times=1)
    with running(
        on, "selftest", "--yes", reached=lambda: on.simulation.state.gpus[FIRST].mig
    ) as process:
        process.kill()
        process.wait()
    until(lambda: not (journal(on) / CHANGE).exists())
    until(lambda: on.simulation.clients() == 0)
    assert on.gpus() == before
    assert ended(on) == [("a self-test", "rolled-back")]


@pytest.mark.long
def test_a_second_ctrl_c_leaves_the_way_back_to_the_worker(on: SimulatedNode) -> None:
    before = on.gpus()
    with begun(on) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr
        process.stderr.readline()
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == UNFINISHED
    assert "not waited for: the self-test continues without this command, and restores" in errors
    until(lambda: not (journal(on) / CHANGE).exists())
    until(lambda: on.simulation.clients() == 0)
    assert on.gpus() == before
