# SPDX-License-Identifier: Apache-2.0
"""A guest boots with cgroup v2 alone, and a machine that cannot have one says why."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.agent.agent_process import until
from tests.controlplane.builds import NotPreparedError
from tests.controlplane.programs import ROOT
from tests.controlplane.test_toolchain import put_on_path
from tests.node import images
from tests.uml import guest, kernel
from tests.uml.first_process import Job
from tests.uml.guest import environment, pytest_job, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SMALL_GIB = 1
STARTER = """
import sys
from tests.uml.first_process import Job
from tests.uml.guest import environment, run
job = Job(command=("sh", "-c", "echo up && exec sleep 600"), folder="/", environment=environment())
run(job, memory_gib=1, say=lambda line: print(line, end="", flush=True))
"""


def shell(script: str) -> Job:
    return Job(command=("sh", "-c", script), folder="/", environment=environment())


def test_a_guest_has_cgroup_v2_alone_and_writes_none_of_the_hosts_files(tmp_path: Path) -> None:
    kernel.demand(SMALL_GIB)
    lines: list[str] = []
    there = Path(__file__).with_name("written")
    script = f"stat -f -c %T /sys/fs/cgroup; cat /proc/self/cgroup; echo > {there}; ls {there}"
    unwritable = f"touch {tmp_path}/made 2>&-; exit 7"

    code = run(shell(f"{script}; {unwritable}"), memory_gib=SMALL_GIB, say=lines.append)

    written = [f"{there}\n"]
    assert (code, lines[:3]) == (7, ["cgroup2fs\n", "0::/\n", *written])
    assert not there.exists()
    assert not list(tmp_path.iterdir())


def test_a_machine_of_namespaces_runs_there() -> None:
    kernel.demand(SMALL_GIB)
    lines: list[str] = []
    one = "::test_names_processes_addresses_cgroups_and_disk_are_its_own"

    code = run(
        pytest_job([f"tests/node/test_machine.py{one}"]), memory_gib=SMALL_GIB, say=lines.append
    )

    assert code == 0, "".join(lines)
    assert any(" 1 passed in " in line for line in lines)


def test_no_process_and_no_disk_of_a_guest_outlives_its_starter(tmp_path: Path) -> None:
    kernel.demand(SMALL_GIB)
    command = (sys.executable, "-c", STARTER)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as starter:
        try:
            assert starter.stdout
            assert starter.stdout.readline() == "up\n"
            below = psutil.Process(starter.pid).children(recursive=True)
        finally:
            starter.kill()
    until(lambda: not any(it.is_running() for it in below))
    assert len(below) > 1
    assert not list(tmp_path.rglob(guest.DISK))


class Fake:
    """A program in the place of the kernel."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program = root / kernel.PROGRAM
        self.program.parent.mkdir(parents=True)
        (root / "usr/lib/uml/modules/6.1").mkdir(parents=True)
        monkeypatch.setattr(kernel, "unpacked", lambda: root)

    def does(self, script: str) -> None:
        """``$result``: the folder for the result."""
        finds = "for word; do result=$word; done"
        self.program.write_text(f"#!/bin/sh\n{finds}\n{script}\n")
        self.program.chmod(0o700)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path / "root", monkeypatch)


def test_the_jobs_exit_code_and_its_lines_alone_are_handed_on(fake: Fake) -> None:
    fake.does('echo booting; touch "$result/begun"; sleep 0.1; echo job; echo 5 > "$result/code"')
    lines: list[str] = []

    assert run(shell(""), say=lines.append) == 5
    assert lines == ["job\n"]


def test_a_guest_that_does_not_boot_is_explained_by_its_last_lines(fake: Fake) -> None:
    fake.does("echo Checking ptrace; echo ptrace: Operation not permitted; exit 1")

    with pytest.raises(NotPreparedError, match=r"did not boot here: .*ptrace: Operation not perm"):
        run(shell(""), say=pytest.fail)


def test_a_guest_that_ends_before_its_job_has_no_result(fake: Fake) -> None:
    fake.does('touch "$result/begun"; exit 0')

    with pytest.raises(RuntimeError, match="ended before its job"):
        run(shell(""), say=pytest.fail)


@pytest.mark.parametrize(
    ("taken", "by", "reason"),
    [
        ("machine", lambda: "aarch64", "x86_64 alone: take such a machine"),
        ("which", lambda _: None, "no program mkfs.ext4: install e2fsprogs"),
        ("_available_bytes", lambda: kernel.GIB, "1.0 GiB of memory are free in .*, the guest ta"),
    ],
)
def test_what_a_guest_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, taken: str, by: Callable[..., object], reason: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    owner = {"machine": platform, "which": shutil}.get(taken, kernel)
    monkeypatch.setattr(owner, taken, by)

    with pytest.raises(NotPreparedError, match=f"no User Mode Linux can run here: .*{reason}"):
        kernel.demand(2)


def test_without_memory_as_a_file_system_there_is_no_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no such file" in kernel.why_not(1, tmp_path / "shm").lower()
    flags = os.statvfs_result((4096, 4096, *(1 << 30,) * 6, os.ST_NOEXEC, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    assert "mounted noexec" in kernel.why_not(1)


def test_a_package_that_the_mirror_no_longer_has_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = put_on_path(tmp_path / "path", monkeypatch) / "apt-get"
    gone.write_text("#!/bin/sh\necho E: Version was not found >&2\nexit 100\n")
    gone.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel, "PACKAGE", replace(kernel.PACKAGE, version="7-1"))

    with pytest.raises(NotPreparedError, match=r"package user-mode-linux 7-1 .*was not found"):
        kernel.unpacked()
    assert not [it for it in (tmp_path / "cache").rglob("*") if it.is_file()]


@pytest.mark.parametrize(("in_ci", "code"), [("true", 1), ("", 0)])
def test_the_command_ends_with_the_reason_and_fails_in_ci_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], in_ci: str, code: int
) -> None:
    monkeypatch.setenv("CI", in_ci)
    monkeypatch.setattr(kernel, "why_not", lambda _: "no memory")
    monkeypatch.setattr(images, "our_image", pytest.fail)

    assert guest.main([]) == code
    assert capsys.readouterr().out == "no User Mode Linux can run here: no memory\n"
