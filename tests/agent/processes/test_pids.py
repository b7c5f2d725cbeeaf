# SPDX-License-Identifier: Apache-2.0
"""Whose process it is: the pod in its cgroup, and whether pids mean the same here and there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from agent.processes.pids import MOST_NAME_CHARACTERS, ProcessOwner, missing, process_owner

UID = "3f2a9c1d-0b7c-4d55-9d2e-6a1f0c9b8e77"
ID = "c" * 64


def tree(root: Path, *, pid: int | None = None, namespace: int = 4026532000) -> Path:
    """A /proc in which this process has ``pid``, its own unless given, and is alone with init."""
    mine = str(os.getpid() if pid is None else pid)
    proc = root / "proc"
    (proc / mine / "ns").mkdir(parents=True)
    (proc / mine / "ns/pid").symlink_to(f"pid:[{namespace}]")
    (proc / mine / "cgroup").write_text("0::/\n")
    (proc / "self").symlink_to(mine)
    (proc / "1").mkdir()
    (proc / "1/cgroup").write_text("0::/../../../init.scope\n")
    return proc


def test_nothing_is_missing_on_a_machine_itself(tmp_path: Path) -> None:
    """Even where all processes are in one cgroup, as without systemd."""
    proc = tree(tmp_path, namespace=4026531836)
    (proc / "1/cgroup").write_text("0::/\n")

    assert missing(proc) is None


def test_nothing_is_missing_where_init_is_seen_from_a_container(tmp_path: Path) -> None:
    """As with hostPID on a node that is a container itself."""
    assert missing(tree(tmp_path)) is None


def test_without_host_pid_the_first_process_is_the_container_s(tmp_path: Path) -> None:
    proc = tree(tmp_path)
    (proc / "1/cgroup").write_text("0::/\n")

    assert missing(proc) == (
        "no process outside the agent's pod is seen: run it with hostPID: true"
    )


@pytest.mark.parametrize(
    ("own", "first"),
    [
        ("0::/", f"0::/../cri-containerd-{ID}.scope"),
        ("0::/", f"0::/../{ID}"),
        (f"0::/kubepods/pod{UID}/a", f"0::/kubepods/pod{UID}/{ID}"),
        (f"4:memory:/kubepods/pod{UID}/a\n0::/", f"4:memory:/kubepods/pod{UID}/{ID}\n0::/"),
    ],
)
def test_where_a_pod_shares_its_processes_the_first_is_the_pod_s(
    tmp_path: Path, own: str, first: str
) -> None:
    """As with shareProcessNamespace: it is the pod's pause container, and not the host's init."""
    proc = tree(tmp_path)
    (proc / "self/ns/cgroup").symlink_to("cgroup:[4026532567]")
    (proc / "self/cgroup").write_text(own)
    (proc / "1/cgroup").write_text(first)

    assert missing(proc) == (
        "no process outside the agent's pod is seen: run it with hostPID: true"
    )


@pytest.mark.parametrize(
    ("own", "first"),
    [
        ("0::/", "0::/../../../../init.scope"),
        (f"0::/kubepods/pod{UID}/a", "0::/init.scope"),
        ("0::/system.slice/gpuscape.service", "0::/init.scope"),
    ],
)
def test_a_node_that_is_a_container_has_an_init_of_its_own(
    tmp_path: Path, own: str, first: str
) -> None:
    proc = tree(tmp_path)
    (proc / "self/ns/cgroup").symlink_to("cgroup:[4026532567]")
    (proc / "self/cgroup").write_text(own)
    (proc / "1/cgroup").write_text(first)

    assert missing(proc) is None


def test_without_host_pid_the_host_s_pids_are_others(tmp_path: Path) -> None:
    """The host's /proc is mounted, but the driver counts as the agent's namespace does."""
    proc = tree(tmp_path, pid=os.getpid() + 1)

    assert missing(proc) == f"{proc} has other pids than this agent: run it with hostPID: true"


def test_a_missing_proc_is_named(tmp_path: Path) -> None:
    proc = tmp_path / "proc"

    assert missing(proc) == f"{proc} is no process file system: No such file or directory"


def test_a_process_is_told_by_name_and_pod(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        folder = tmp_path / str(process.pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubepods/pod{UID}/{ID}\n")
        found = process_owner(tmp_path, process.pid)
        process.kill()

    assert found == ProcessOwner(name="sleep", pod_uid=UID)


def test_of_a_process_that_ended_nothing_is_told(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()

    assert process_owner(tmp_path, process.pid) == ProcessOwner()


def test_of_a_cgroup_without_end_only_the_start_is_read(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("x" * (1 << 20) + f"\n0::/pod{UID}/\n")

    assert process_owner(tmp_path, 7).pod_uid is None


def test_a_name_is_cut_and_valid_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process calls itself what it likes, in any bytes."""
    monkeypatch.setattr(psutil.Process, "name", lambda _: "\udcff" + "x" * 1000)

    name = process_owner(tmp_path, os.getpid()).name

    assert name == "?" + "x" * (MOST_NAME_CHARACTERS - 1)
