# SPDX-License-Identifier: Apache-2.0
"""Whose process it is: the pod in its cgroup, and whether pids mean the same here and there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from agent.processes.pids import MOST_NAME_CHARACTERS, ProcessOwner, missing, pod_uid, process_owner

UID = "3f2a9c1d-0b7c-4d55-9d2e-6a1f0c9b8e77"
SLICE = UID.replace("-", "_")
OTHER = "11111111-2222-4333-8444-555555555555"
STATIC = "0123456789abcdef0123456789abcdef"
ID = "c" * 64
V1 = "12:pids:{0}\n4:memory:{0}\n1:name=systemd:{0}\n0::/system.slice/containerd.service\n"


@pytest.mark.parametrize(
    "path",
    [
        # cgroupfs: one folder for the pod, one for the container
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/besteffort/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID}/crio-{ID}",
        # systemd: containerd, CRI-O, docker
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice"
        f"/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/crio-{ID}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice"
        f"/docker-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/crio-{ID}.scope/container",
        # containerd on cgroupfs below a kubelet on systemd
        f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice:cri-containerd:{ID}",
        # a node that is a container
        f"/docker/{ID}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice"
        f"/cri-containerd-{ID}.scope",
        # from within another container's cgroup namespace
        f"/../../kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/../../pod{UID}/{ID}",
        # a group that the container made itself
        f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER}/{ID}",
        f"/kubepods/pod{UID}/{ID}/pod{OTHER}",
    ],
)
@pytest.mark.parametrize("version", [V1, "0::{0}\n"], ids=["v1", "v2"])
def test_the_pod_is_found_in_a_cgroup_of_every_runtime_and_driver(path: str, version: str) -> None:
    assert pod_uid(version.format(path)) == UID


def test_a_pod_from_a_file_on_the_node_has_a_uid_of_another_form() -> None:
    assert pod_uid(f"0::/kubepods/pod{STATIC}/{ID}\n") == STATIC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-3.scope\n",
        f"0::/docker/{ID}\n",
        f"0::/machine.slice/libpod-{ID}.scope\n",
        f"0::/machine.slice/libpod_pod_{ID}.slice\n",
        f"0::/kubepods/pod{UID}0/{ID}\n",
        f"0::/kubepods/pod{UID[:-1]}/{ID}\n",
        f"0::/kubepods/xpod{UID}/{ID}\n",
        f"0::/kubepods/pod{UID.upper()}/{ID}\n",
        "no cgroup at all",
        "\x00\ufffd::",
    ],
)
def test_what_is_no_pod_s_cgroup_names_none(text: str) -> None:
    assert pod_uid(text) is None


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
        "no process outside the agent's container is seen: run it with hostPID: true"
    )


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
